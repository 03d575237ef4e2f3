"""Microseconds of one walk over a 16-node tree, vocabulary 49,152: python benchmarks/walk.py

Scores are random (standard deviation 3); the drafted path is made certain down to the accepted depth.
"""

from __future__ import annotations

import time

import numpy as np

from medusakit.runtimes.reference import ArrayScores
from medusakit.settings import SamplingParams
from medusakit.tree.topology import Topology, Tree
from medusakit.verify.rules import make_rule
from medusakit.verify.walk import walk

VOCAB, REPEATS = 49_152, 300
SHAPE = Topology.from_rank_paths([
    (0,), (1,), (0, 0), (2,), (0, 1), (1, 0), (0, 0, 0), (3,), (0, 2), (1, 1), (0, 0, 1), (0, 1, 0), (2, 0),
    (0, 0, 0, 0), (4,),
])  # fmt: skip
DEEPEST = SHAPE.path(SHAPE.rank_paths.index((0, 0, 0, 0)))
REQUESTS = {
    "greedy": SamplingParams(),
    "greedy, penalties": SamplingParams(repetition_penalty=1.1, presence_penalty=0.5),
    "sample 0.8": SamplingParams(temperature=0.8),
    "sample 0.8, top_p 0.95": SamplingParams(temperature=0.8, top_p=0.95),
    "sample 0.8, top_k 50": SamplingParams(temperature=0.8, top_k=50),
    "sample 0.8, min_p 0.05": SamplingParams(temperature=0.8, min_p=0.05),
    "typical 0.7": SamplingParams(temperature=0.7, acceptance="typical"),
    "dynamic 0.7": SamplingParams(temperature=0.7, acceptance="dynamic"),
}


class KnownArgmax(ArrayScores):
    """As a runtime gives it that computes argmax in its own pass."""

    def argmax(self, node: int) -> int:
        return BEST[node]


def median_us(params: SamplingParams, depth: int) -> float:
    random = np.random.default_rng(0)
    rows = random.standard_normal((16, VOCAB)).astype(np.float32) * 3
    tokens = random.integers(0, VOCAB, 16)
    for parent, child in zip(DEEPEST[:depth], DEEPEST[1:], strict=False):
        rows[parent, tokens[child]] = 38
    rows[DEEPEST[depth], 5] = 20
    BEST[:] = rows.argmax(axis=1).tolist()
    scores, tree = KnownArgmax(rows, rows[:, :1]), Tree(SHAPE, tokens)
    rule, history = make_rule(params, seed=7, vocab_size=VOCAB), random.integers(0, VOCAB, 600).tolist()
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        path = walk(tree, scores, rule, history)
        seconds.append(time.perf_counter() - started)
        assert path.num_accepted >= depth
        history.append(int(random.integers(VOCAB)))
    return float(np.median(seconds)) * 1e6


BEST = [0] * 16

if __name__ == "__main__":
    print(f"{'':26}" + "".join(f"{f'accepts {depth}':>14}" for depth in (0, 2, 4)))
    for name, params in REQUESTS.items():
        print(f"{name:26}" + "".join(f"{median_us(params, depth):11.0f} us" for depth in (0, 2, 4)))
