"""Which token is whose label. The example is worked out by hand."""

from __future__ import annotations

import numpy as np

from medusakit.train.heads_data import count_tokens, epoch_batches, make_batch
from medusakit.train.shards import Sample


def sample(prompt: list[int], gen: list[int], size: int = 2) -> Sample:
    """Hidden state of row j is [j, j, ...]."""
    hidden = np.repeat(np.arange(len(gen), dtype=np.float16)[:, None], size, axis=1)
    return Sample(np.array(prompt + gen, np.int32), len(prompt), hidden, group=0)


def test_labels_by_hand() -> None:
    """Prompt 7 8, answer 10 11 12 13 (P = 2, G = 4). The state at the last prompt position t = 1 is row 0: it decides
    the root 10, head 0 guesses token t + 2 = 11, head 1 token t + 3 = 12. Rows of head k: t = P-1 .. P+G-3-k."""
    batch = make_batch([sample([7, 8], [10, 11, 12, 13])])
    assert batch.tokens.tolist() == [[8, 10, 11, 12, 13]]
    places = batch.places()
    assert places[1].tolist() == [0, 1, 2]  # head 0: t = 1, 2, 3
    rows, labels = batch.labels(places, 0)
    assert labels.tolist() == [11, 12, 13]
    assert rows.tolist() == [1, 2, 3]  # the state that predicts gen[j] is row j
    assert batch.labels(places, 1)[1].tolist() == [12, 13, -1]
    assert batch.labels(places, 2)[1].tolist() == [13, -1, -1]
    assert batch.labels(places, 3)[1].tolist() == [-1, -1, -1]


def test_a_label_never_crosses_the_end_of_its_answer() -> None:
    """The shorter answer is padded, and its neighbour's tokens are not its labels."""
    batch = make_batch([sample([5], [20, 21]), sample([6], [30, 31, 32, 33])])
    places = batch.places()
    for head in range(4):
        rows, labels = batch.labels(places, head)
        for answer, row, target, label in zip(*places, rows, labels, strict=True):
            own = [[20, 21], [30, 31, 32, 33]][answer]
            expected = own[row + 1 + head] if row + 1 + head < len(own) else -1
            assert label == expected
            assert target == (row + 1 + head if expected >= 0 else -1)


def test_hidden_states_stay_with_their_rows() -> None:
    batch = make_batch([sample([5], [20, 21]), sample([6], [30, 31, 32])])
    assert batch.hidden[:, :, 0].tolist() == [[0, 1, 0], [0, 1, 2]]
    assert batch.num_rows == 5


def test_an_epoch_has_every_answer_once_and_differs_by_epoch() -> None:
    lengths = [1, 5, 9, 3, 7, 2, 4] * 40
    batches = epoch_batches(lengths, 20, np.random.default_rng(0))
    seen = sorted(index for batch in batches for index in batch)
    assert seen == [index for index, length in enumerate(lengths) if length >= 2]
    assert batches == epoch_batches(lengths, 20, np.random.default_rng(0))
    assert batches != epoch_batches(lengths, 20, np.random.default_rng(1))
    sizes = [sum(lengths[index] for index in batch) for batch in batches]
    assert max(sizes) < 20 + 9


def test_counts() -> None:
    counts = count_tokens([sample([1], [2, 2, 3]), sample([2], [3])], 5)
    assert counts.tolist() == [0, 0, 2, 2, 0]
