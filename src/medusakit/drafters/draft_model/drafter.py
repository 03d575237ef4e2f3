"""A second, smaller model of the same vocabulary as the drafter: speculative decoding as it began (Leviathan et al.,
2211.17192), here over token trees. For comparison: it costs a whole model's memory and a pass per depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log

import numpy as np

from medusakit.drafters.base import DraftState
from medusakit.drafters.plan import (
    Level,
    Table,
    beam_sizes,
    check_beam,
    draft_of_beam,
    draft_of_topology,
    plan_levels,
)
from medusakit.runtimes.base import Runtime, Scores
from medusakit.tree.topology import Beam, Draft, FloatArray, IntArray, Shape, Topology, Tree
from medusakit.verify.history import common_prefix

FAMILY = "draft_model"
BEAM = Beam((3, 3, 2, 2), 4)
MAX_DEPTH = 8
CATCH_UP = 16  # missing positions that still go with the draft's first pass


class DraftModelDrafter:
    """Owns a runtime, with a row for every row that it drafts for.

    A row's KV holds the text before the root. What was committed since the last draft goes through the model with the
    root, as a chain, in the pass that gives the first guesses; what no longer belongs to the text is cut off. A text
    longer than the model's context is read from its second half on.
    """

    name = FAMILY

    def __init__(self, runtime: Runtime, *, num_params: int = 0, num_bytes: int = 0) -> None:
        """runtime: with as many rows as the backbone's, and its vocabulary. num_params, num_bytes: of the model."""
        self._runtime = runtime
        self.num_params, self.num_bytes = num_params, num_bytes
        self._limit = runtime.capabilities.max_context
        self.max_depth = max(1, min(MAX_DEPTH, self._limit // 4))
        self._rows: dict[int, _Row] = {}

    def propose(self, states: Sequence[DraftState], shape: Shape) -> list[Draft]:
        vocab_size = self._runtime.spec.vocab_size
        if isinstance(shape, Beam):
            check_beam(shape, max_depth=self.max_depth)
            branching, widths = beam_sizes(shape, vocab_size)
            least = log(max(shape.least, 1e-30))
            grown = self._grow(states, [branching] * len(widths), [_Best(width, least) for width in widths])
            return [
                draft_of_beam(state.root_id, nodes.chosen, branching, nodes.tables)
                for state, nodes in zip(states, grown, strict=True)
            ]
        levels = plan_levels(shape, max_depth=self.max_depth, vocab_size=vocab_size)
        grown = self._grow(states, [level.branching for level in levels], [_Planned(level) for level in levels])
        return [
            draft_of_topology(shape, levels, state.root_id, nodes.tables)
            for state, nodes in zip(states, grown, strict=True)
        ]

    def observe(self, row: int, kept_ids: Sequence[int], hidden: FloatArray) -> None:
        """Kept ids come with the next proposal's state."""

    def forget(self, row: int) -> None:
        if known := self._rows.pop(row, None):
            self._runtime.drop_row(known.handle)

    def close(self) -> None:
        """Give back the model's memory; the drafter is of no use afterwards."""
        self._rows.clear()
        self._runtime.close()

    def _grow(
        self, states: Sequence[DraftState], branchings: Sequence[int], choices: Sequence[_Best | _Planned]
    ) -> list[_Nodes]:
        """Level by level, one pass for all rows that go on."""
        grown = [_Nodes([state.root_id]) for state in states]
        for depth, (branching, choice) in enumerate(zip(branchings, choices, strict=True)):
            going = [(state, nodes) for state, nodes in zip(states, grown, strict=True) if nodes.newest]
            if not going:
                break
            scores = self._pass(going) if depth else self._first_pass(states)
            for (_, nodes), row_scores in zip(going, scores, strict=True):
                nodes.guess(row_scores, branching)
                nodes.choose(choice)
        return grown

    def _first_pass(self, states: Sequence[DraftState]) -> list[_Leaves]:
        """Scores of the roots; afterwards the KV of every row holds the text before its root."""
        chains = [self._missing(state) for state in states]
        rows = [self._rows[state.row] for state in states]
        scores = self._runtime.forward(
            [(row.handle, Tree.chain(ids)) for row, ids in zip(rows, chains, strict=True)],
        )
        leaves = [_Leaves(one, [len(ids) - 1]) for one, ids in zip(scores, chains, strict=True)]
        for row, ids in zip(rows, chains, strict=True):
            if len(ids) > 1:
                self._runtime.commit(row.handle, range(len(ids) - 1))
                row.ids.extend(ids[:-1])
        return leaves

    def _pass(self, going: Sequence[tuple[DraftState, _Nodes]]) -> list[_Leaves]:
        scores = self._runtime.forward([(self._rows[state.row].handle, nodes.tree()) for state, nodes in going])
        return [_Leaves(one, nodes.newest) for one, (_, nodes) in zip(scores, going, strict=True)]

    def _missing(self, state: DraftState) -> list[int]:
        """Ids up to the root that the row's KV lacks, the root last; a long gap is run at once."""
        row = self._rows.get(state.row) or self._rows.setdefault(state.row, _Row(self._runtime.add_row()))
        if len(state.ids) - row.start + self.max_depth > self._limit:
            row.start = len(state.ids) - self._limit // 2
        text = list(state.ids[row.start :])
        known = common_prefix(row.ids, text[:-1])
        if known < len(row.ids):
            self._runtime.truncate(row.handle, known)
            del row.ids[known:]
        missing = text[known:]
        if len(missing) > CATCH_UP:
            self._runtime.prefill(row.handle, missing[:-1])
            row.ids.extend(missing[:-1])
            return missing[-1:]
        return missing


@dataclass(slots=True)
class _Row:
    """handle: the row of the drafter's runtime; start: place in the text of the first position in its KV, ids: what its
    KV holds."""

    handle: int
    start: int = 0
    ids: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Leaves:
    """The scores of a pass, and which of its nodes are to be continued."""

    scores: Scores
    nodes: Sequence[int]


@dataclass(slots=True)
class _Nodes:
    """A draft in the making: the nodes that the model runs, node 0 the root; per level the guesses under the newest of
    them, and the flat places of those that were kept."""

    tokens: list[int]
    parents: list[int] = field(default_factory=lambda: [-1])
    newest: list[int] = field(default_factory=lambda: [0])
    total: FloatArray = field(default_factory=lambda: np.zeros(1, np.float32))
    tables: list[Table] = field(default_factory=list)
    chosen: list[IntArray] = field(default_factory=list)

    def tree(self) -> Tree:
        return Tree(Topology.from_parents(self.parents), np.array(self.tokens, np.int64))

    def guess(self, leaves: _Leaves, branching: int) -> None:
        rows = [_best(leaves.scores.logits(node), branching) for node in leaves.nodes]
        self.tables.append((np.stack([ids for ids, _ in rows]), np.stack([logprobs for _, logprobs in rows])))

    def choose(self, choice: _Best | _Planned) -> None:
        """The chosen places become nodes, under which the next level guesses."""
        ids, logprobs = self.tables[-1]
        paths = (self.total[:, None] + logprobs).reshape(-1)
        places = choice.places(paths)
        self.chosen.append(places)
        if not choice.goes_on(paths):
            self.newest = []
            return
        first = len(self.tokens)
        self.parents.extend(self.newest[place // ids.shape[1]] for place in places.tolist())
        self.tokens.extend(ids.reshape(-1)[places].tolist())
        self.newest = list(range(first, len(self.tokens)))
        self.total = paths[places]


@dataclass(frozen=True, slots=True)
class _Best:
    """A beam: the `width` most probable paths, while one has a log-probability of `least` or more."""

    width: int
    least: float

    def places(self, paths: FloatArray) -> IntArray:
        return np.argsort(-paths, kind="stable")[: self.width]

    def goes_on(self, paths: FloatArray) -> bool:
        return float(paths.max()) >= self.least


@dataclass(frozen=True, slots=True)
class _Planned:
    """A static shape: what its level expands."""

    level: Level

    def places(self, paths: FloatArray) -> IntArray:
        return self.level.flat()[self.level.expanded]

    def goes_on(self, paths: FloatArray) -> bool:
        return True


def _best(logits: FloatArray, count: int) -> Table:
    """The `count` most probable ids, in order, and their log-probs."""
    highest = logits.max()
    total = highest + np.log(np.exp(logits - highest).sum(dtype=np.float64))
    candidates = np.argpartition(-logits, count - 1)[:count] if count < len(logits) else np.arange(len(logits))
    ids = candidates[np.lexsort((candidates, -logits[candidates]))]
    return ids.astype(np.int64), (logits[ids] - total).astype(np.float32)
