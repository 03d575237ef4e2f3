"""The trial of the kernels: right about a runtime that keeps bits and one that does not, asked once a machine."""

import numpy as np

from medusakit.runtimes.onnx.exactness import bits_are_kept, remembered
from medusakit.runtimes.reference import random_reference


class Sloppy:
    """The oracle, but a pass over several nodes moves one score by its last bit."""

    def __init__(self):
        self._inner = random_reference(0, 50)

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def forward(self, trees):
        scores = self._inner.forward(trees)[0]
        if scores.num_nodes == 1:
            return [scores]
        rows = [scores.logits(node).copy() for node in range(scores.num_nodes)]
        rows[-1][7] = np.nextafter(rows[-1][7], np.float32(9))
        return [type("Scores", (), {"logits": staticmethod(rows.__getitem__)})]


def test_one_bit_of_one_score_is_noticed():
    assert not bits_are_kept(Sloppy())


def test_rows_are_given_back():
    runtime = random_reference(0, 50)
    bits_are_kept(runtime)
    assert runtime.rows == ()


def test_the_answer_is_remembered_for_the_machine_and_its_threads(tmp_path):
    asked = []
    for threads in (1, 1, 2):
        assert remembered(tmp_path, threads, lambda: asked.append(1) is None)
    assert len(asked) == 2
    assert not remembered(tmp_path / "absent", 1, lambda: False)


def test_a_damaged_memory_is_asked_again(tmp_path):
    (tmp_path / "bits.json").write_text("{")
    assert not remembered(tmp_path, 1, lambda: False)
