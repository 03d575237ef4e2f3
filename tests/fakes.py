"""Test doubles: scores from arrays, a byte tokenizer, a scripted model with drafters of known skill, a clock.

script = Script.of("some text", vocab_size=258)     # the model says exactly this, whatever the prompt was
runtime = ScriptedRuntime(script)                    # a full `Runtime`; `runtime.kv(row)` shows what a row holds
drafter = ScriptedDrafter(script, depths=[2, 0, 1])  # right to depth 2, then 0, then 1, then again
drafter = SkilledDrafter(script, probability=0.7, seed=1)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from medusakit.drafters.base import DraftState
from medusakit.errors import ContextLengthError, RuntimeFailure
from medusakit.models.spec import ModelSpec
from medusakit.runtimes.base import Capabilities, RowMemory
from medusakit.runtimes.reference import ArrayScores
from medusakit.runtimes.reference_source import random_source
from medusakit.tree.topology import Beam, Draft, FloatArray, Shape, Topology, Tree

BOS, EOS = 256, 257


def scores(rows: object) -> ArrayScores:
    """`Scores` over logits [n, V], with hidden states of one zero."""
    logits = np.asarray(rows, dtype=np.float32)
    return ArrayScores(logits, np.zeros((len(logits), 1), dtype=np.float32))


class ByteTokenizer:
    """Token i is byte i; 256 begins and 257 ends a sequence."""

    vocab_size = 258
    eos_ids = frozenset({EOS})
    bos_id = BOS
    special_ids = frozenset({BOS, EOS})
    chat_template: str | None = None
    hash = "bytes"
    space_prefix = False

    def encode(self, text: str, *, add_special: bool = False) -> list[int]:
        return [BOS] * add_special + list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(self.token_bytes(i) for i in ids).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else b""


@dataclass(frozen=True, slots=True)
class Script:
    """A model that only counts: the token at absolute position p is tokens[p % len(tokens)]."""

    tokens: tuple[int, ...]
    vocab_size: int

    @classmethod
    def of(cls, text: str, vocab_size: int = 258) -> Script:
        return cls(tuple(text.encode()), vocab_size)

    def at(self, position: int) -> int:
        return self.tokens[position % len(self.tokens)]


@dataclass(slots=True)
class ScriptedRuntime:
    """A `Runtime` that says the script. A row's KV is the list of token ids that were committed to it."""

    script: Script
    max_rows: int = 8
    max_context: int = 4096
    num_forwards: int = 0
    _kv: dict[int, list[int]] = field(default_factory=dict)
    _trees: dict[int, Tree] = field(default_factory=dict)
    _next_row: int = 0

    @property
    def spec(self) -> ModelSpec:
        return random_source(0, self.script.vocab_size).spec

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities("f32", "bitwise-ties", self.max_rows, self.max_context)

    @property
    def rows(self) -> tuple[int, ...]:
        return tuple(self._kv)

    def kv(self, row: int) -> tuple[int, ...]:
        return tuple(self._kv[row])

    def add_row(self) -> int:
        if len(self._kv) >= self.max_rows:
            raise RuntimeFailure(f"all {self.max_rows} rows are in use")
        self._next_row += 1
        self._kv[self._next_row] = []
        return self._next_row

    def drop_row(self, row: int) -> None:
        del self._kv[row]
        self._trees.pop(row, None)

    def length(self, row: int) -> int:
        return len(self._kv[row])

    def prefill(self, row: int, ids: Sequence[int]) -> ArrayScores:
        return self._scores(self._append(row, ids)[-1:])

    def hidden_states(self, row: int, ids: Sequence[int]) -> FloatArray:
        return self._scores(self._append(row, ids)).states

    def forward(self, trees: Sequence[tuple[int, Tree]]) -> list[ArrayScores]:
        self.num_forwards += 1
        for row, tree in trees:
            self._check(len(self._kv[row]) + tree.topology.max_depth + 1)
        self._trees.update(trees)
        return [self._scores(len(self._kv[row]) + tree.topology.depths) for row, tree in trees]

    def commit(self, row: int, nodes: Sequence[int]) -> None:
        tree = self._trees.pop(row)
        assert list(nodes) == tree.topology.path(nodes[-1]), f"{nodes} is not a path from the root"
        self._kv[row] += [int(tree.tokens[node]) for node in nodes]

    def fill(self, row: int, length: int) -> None:
        self._kv[row].extend([0] * length)

    def truncate(self, row: int, length: int) -> None:
        assert 0 <= length <= len(self._kv[row])
        del self._kv[row][length:]

    def save(self, row: int) -> RowMemory:
        return RowMemory(len(self._kv[row]), (np.array(self._kv[row], np.int64),))

    def restore(self, row: int, memory: RowMemory, length: int) -> None:
        assert not self._kv[row] and length <= memory.length
        self._kv[row] += memory.arrays[0][:length].tolist()

    def close(self) -> None:
        self._kv.clear()

    def _append(self, row: int, ids: Sequence[int]) -> np.ndarray:
        positions = len(self._kv[row]) + np.arange(len(ids))
        self._check(len(self._kv[row]) + len(ids))
        self._kv[row] += list(ids)
        return positions

    def _check(self, positions: int) -> None:
        if positions > self.max_context:
            raise ContextLengthError(f"{positions} positions are needed, but the context holds {self.max_context}")

    def _scores(self, positions: np.ndarray) -> ArrayScores:
        """The hidden state at position p is [p, 0, ...]; the scores after it prefer the script's token at p + 1."""
        logits = np.zeros((len(positions), self.script.vocab_size), dtype=np.float32)
        logits[np.arange(len(positions)), [self.script.at(p + 1) for p in positions.tolist()]] = 10
        states = np.zeros((len(positions), self.spec.hidden_size), dtype=np.float32)
        states[:, 0] = positions
        return ArrayScores(logits, states)


@dataclass(slots=True)
class ScriptedDrafter:
    """Right down to the depth that `depths` names for this proposal, else wrong; rank 0 is the right guess."""

    script: Script
    depths: Sequence[int]
    max_depth: int = 8
    name: str = "scripted"
    observed: dict[int, list[int]] = field(default_factory=dict)
    _num_proposals: int = 0

    def propose(self, states: Sequence[DraftState], shape: Shape) -> list[Draft]:
        topology = Topology.chain(len(shape.widths)) if isinstance(shape, Beam) else shape
        return [self._draft(state, topology) for state in states]

    def observe(self, row: int, kept_ids: Sequence[int], hidden: FloatArray) -> None:
        assert len(kept_ids) == len(hidden)
        self.observed.setdefault(row, []).extend(kept_ids)

    def forget(self, row: int) -> None:
        self.observed.pop(row, None)

    def _next_depth(self) -> int:
        depth = self.depths[self._num_proposals % len(self.depths)]
        self._num_proposals += 1
        return depth

    def _draft(self, state: DraftState, topology: Topology) -> Draft:
        right_to = self._next_depth()
        tokens = [state.root_id]
        for path in topology.rank_paths[1:]:
            truth = self.script.at(len(state.ids) - 1 + len(path))
            right = not any(path) and len(path) <= right_to
            tokens.append(truth if right else (truth + 1 + path[-1]) % self.script.vocab_size)
        logprobs = np.full(topology.num_nodes, np.log(0.5), dtype=np.float32)
        logprobs[0] = 0
        return Draft(topology, np.array(tokens, dtype=np.int64), logprobs)


@dataclass(slots=True)
class SkilledDrafter(ScriptedDrafter):
    """Right at each depth with the given probability, independently, until it is first wrong."""

    depths: Sequence[int] = ()
    probability: float = 0.5
    seed: int = 0
    _random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def _next_depth(self) -> int:
        misses = self._random.random(self.max_depth) >= self.probability
        return int(misses.argmax()) if misses.any() else self.max_depth


@dataclass(slots=True)
class FakeClock:
    """Seconds that pass only when told, and `tick` of them at every reading."""

    now: float = 0.0
    tick: float = 0.0

    def __call__(self) -> float:
        self.now += self.tick
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds
