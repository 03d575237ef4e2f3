"""Rows of the backbone's tables, and which of them a drafter may say."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import quantize

from drafter_toys import SOURCE
from medusakit.drafters.rows import TableRows, rms_normalised
from medusakit.drafters.vocab import choose_draft_ids, coverage, draft_positions
from medusakit.errors import UsageError
from medusakit.models.spec import StoredTensor


def test_rows_of_a_quantised_table_are_those_of_the_whole() -> None:
    values = np.random.default_rng(0).standard_normal((12, 64)).astype(np.float32)
    raw = quantize(values, GGMLQuantizationType.Q8_0)
    table = StoredTensor("embed", "q8_0", values.shape, raw)
    rows = TableRows(table)
    np.testing.assert_array_equal(rows.take([3, 11, 3]), table.f32()[[3, 11, 3]])
    np.testing.assert_array_equal(rows.one(7), table.f32()[7])


def test_head_and_embedding_of_tied_and_untied_models() -> None:
    np.testing.assert_array_equal(TableRows.lm_head(SOURCE).one(4), SOURCE.arrays["lm_head"][4])
    np.testing.assert_array_equal(TableRows.embedding(SOURCE).one(4), SOURCE.arrays["embed"][4])
    tied = SimpleNamespace(spec=SimpleNamespace(tied_embeddings=True), tensor=SOURCE.tensor)
    np.testing.assert_array_equal(TableRows.lm_head(tied).one(4), SOURCE.arrays["embed"][4])


def test_rms_normalised_rows_have_mean_square_one() -> None:
    x = np.array([[3.0, 4.0], [0.1, 0.0]], np.float32)
    np.testing.assert_allclose(np.mean(rms_normalised(x) ** 2, axis=1), 1.0, rtol=1e-3)


def test_the_draft_vocabulary_holds_what_it_must_then_the_most_frequent() -> None:
    counts = np.array([0, 5, 9, 1, 5, 0, 7, 0], np.float32)
    assert choose_draft_ids(counts, 4, always=[7]).tolist() == [1, 2, 6, 7]  # 1 before 4: ties go to the lowest id
    assert choose_draft_ids(counts, 0).tolist() == list(range(8))
    assert coverage(counts, np.array([1, 2, 6, 7])) == pytest.approx(21 / 27)
    assert draft_positions(np.array([1, 6]), 8).tolist() == [-1, 0, -1, -1, -1, -1, 1, -1]


def test_too_small_a_draft_vocabulary_is_refused() -> None:
    with pytest.raises(UsageError, match="of 2 cannot hold the 3"):
        choose_draft_ids(np.zeros(8, np.float32), 2, always=[0, 1, 2])
