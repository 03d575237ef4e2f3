"""Whole 8-bit rows: close to the float product, each row alone, and within 16 bits where the processor needs it."""

import numpy as np
import pytest

from medusakit.runtimes.onnx import integers
from medusakit.runtimes.onnx.graph import GraphWriter
from medusakit.runtimes.onnx.integers import NORMED_BOUND, IntegerWriter, activation_levels
from medusakit.runtimes.onnx.session import make_session

RANDOM = np.random.default_rng(0)
WEIGHT = RANDOM.normal(size=(40, 96)).astype(np.float32)


@pytest.fixture
def product(tmp_path):
    return compiled(tmp_path, lambda writer: writer.emit("x", "w", WEIGHT, "ids"))


@pytest.fixture
def normed_product(tmp_path):
    return compiled(tmp_path, lambda writer: writer.emit_normed("x", "w", WEIGHT))


def compiled(folder, emit):
    with GraphWriter(folder) as graph:
        graph.input("x", np.float32, ["t", 96])
        graph.input("ids", np.int64, ["t"])
        graph.node("Identity", [emit(IntegerWriter(graph))], "y")
        graph.output("y", np.float32, ["t", 40])
        graph.save()
    session = make_session(folder / "model.onnx", threads=1)
    return lambda x: session.run(None, {"x": x, "ids": np.zeros(len(x), np.int64), **activation_levels()})[0]


def rows(count):
    scale = np.exp(RANDOM.normal(size=(count, 1)) * 3)
    return (RANDOM.normal(size=(count, 96)) * scale).astype(np.float32)


def test_products_are_right_to_one_percent_of_their_row(product):
    x = rows(9)
    expected = x @ WEIGHT.T
    error = np.abs(product(x) - expected).max(axis=1) / expected.std(axis=1)
    assert error.max() < 0.05 and np.median(error) < 0.03


def test_a_row_does_not_depend_on_its_companions(product):
    x = rows(12)
    for row, expected in zip(x, product(x), strict=True):
        np.testing.assert_array_equal(product(row[None])[0], expected)


def test_a_row_of_zeros_gives_zeros(product):
    np.testing.assert_array_equal(product(np.zeros((2, 96), np.float32)), np.zeros((2, 40), np.float32))


def test_normed_rows_need_no_scale_of_their_own(normed_product):
    x = RANDOM.normal(size=(9, 96)).astype(np.float32).clip(-NORMED_BOUND, NORMED_BOUND)
    expected = x @ WEIGHT.T
    assert (np.abs(normed_product(x) - expected).max(axis=1) / expected.std(axis=1)).max() < 0.06


def test_normed_rows_are_cut_at_their_bound(normed_product):
    outlier = np.zeros((1, 96), np.float32)
    outlier[0, 5] = 3 * NORMED_BOUND
    np.testing.assert_allclose(normed_product(outlier), normed_product(outlier / 3))


def test_without_vnni_two_products_fit_sixteen_bits(monkeypatch, product):
    monkeypatch.setattr(integers, "_has_vnni", lambda: False)
    levels = activation_levels()
    largest = int(levels["activation_zero"][0]) + 63
    assert 2 * largest * 127 < 2**15 and float(levels["activation_level"]) == np.float32(1 / 63)
    x = rows(5)
    expected = x @ WEIGHT.T
    assert (np.abs(product(x) - expected).max(axis=1) / expected.std(axis=1)).max() < 0.1
