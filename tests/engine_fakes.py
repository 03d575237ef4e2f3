"""A small engine for tests: the reference runtime, one letter per token, a drafter that knows the truth in part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from medusakit.drafters.base import DraftState
from medusakit.engine.controller import FixedController, PlainController
from medusakit.engine.engine import Engine
from medusakit.engine.events import GenerationResult
from medusakit.engine.plan import make_plan
from medusakit.runtimes.reference import random_reference
from medusakit.settings import SamplingParams
from medusakit.tree.policy import StaticPolicy
from medusakit.tree.topology import Draft, FloatArray, Shape, Topology

VOCAB = 23


@dataclass(frozen=True)
class LetterTokenizer:
    """Token i is the letter chr(97 + i); `eos` ends."""

    eos: frozenset[int] = frozenset()
    chat_template: str | None = None
    special_ids: frozenset[int] = frozenset()
    hash: str = "letters"
    vocab_size: int = VOCAB
    space_prefix: bool = False

    @property
    def eos_ids(self) -> frozenset[int]:
        return self.eos

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([97 + token_id])

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(97 + token) for token in ids)

    def encode(self, text: str, *, add_special: bool = False) -> list[int]:
        return [ord(letter) - 97 for letter in text]


@dataclass
class Prophet:
    """Proposes the true continuation with probability `right` per node on the true path, noise elsewhere.

    truths  row -> the whole true sequence of that row, prompt included (rows it does not know get noise)
    """

    right: float
    seed: int = 0
    truths: dict[int, list[int]] = field(default_factory=dict)
    name: str = "prophet"
    max_depth: int = 16
    vocab_size: int = VOCAB
    hidden_size: int = 16
    observed: dict[int, list[int]] = field(default_factory=dict)
    forgotten: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def propose(self, states: Sequence[DraftState], shape: Shape) -> list[Draft]:
        assert isinstance(shape, Topology)
        return [self._draft(state, shape) for state in states]

    def observe(self, row: int, kept_ids: Sequence[int], hidden: FloatArray) -> None:
        assert hidden.shape == (len(kept_ids), self.hidden_size)
        self.observed.setdefault(row, []).extend(kept_ids)

    def forget(self, row: int) -> None:
        self.forgotten.append(row)

    def truth(self, state: DraftState) -> Sequence[int]:
        """The true sequence of the state's row, prompt included, as far as it is known."""
        return self.truths.get(state.row, [])

    def _draft(self, state: DraftState, shape: Topology) -> Draft:
        truth = self.truth(state)
        position = len(state.ids)
        tokens = self._random.integers(0, self.vocab_size, shape.num_nodes)
        tokens[0] = state.root_id
        for children in shape.children:
            if children:  # siblings carry distinct tokens, as every drafter's do
                tokens[list(children)] = self._random.permutation(self.vocab_size)[: len(children)]
                depth = int(shape.depths[children[0]])
                where = position + depth - 1
                if where < len(truth) and self._random.random() < self.right:
                    self._put(tokens, children, truth[where])
        return Draft(shape, tokens, np.zeros(shape.num_nodes, np.float32))

    def _put(self, tokens: np.ndarray, children: tuple[int, ...], token: int) -> None:
        siblings = list(children)
        chosen = int(self._random.choice(siblings))
        tokens[siblings] = [self.vocab_size - 1 if t == token else t for t in tokens[siblings].tolist()]
        tokens[chosen] = token


def plain_engine(seed: int = 0, *, eos: Sequence[int] = (), max_context: int = 64, max_rows: int = 4) -> Engine:
    runtime = random_reference(seed, VOCAB, context_length=max_context, max_rows=max_rows)
    return Engine(runtime, LetterTokenizer(frozenset(eos)), PlainController())


def tree_engine(
    topology: Topology,
    drafter: Prophet,
    seed: int = 0,
    *,
    eos: Sequence[int] = (),
    max_context: int = 64,
    max_rows: int = 4,
) -> Engine:
    runtime = random_reference(seed, VOCAB, context_length=max_context, max_rows=max_rows)
    plan = make_plan(drafter, StaticPolicy(topology), topology.num_nodes)
    return Engine(runtime, LetterTokenizer(frozenset(eos)), FixedController(plan))


def answer(engine: Engine, ids: Sequence[int], params: SamplingParams) -> GenerationResult:
    session = engine.start(ids, params)
    for _ in engine.run(session):
        pass
    engine.finish(session)
    return session.result()
