"""A recurrent drafter at work: one session, one call per draft, as many rows as there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from medusakit.artifact.schema import DrafterConfig
from medusakit.drafters.base import Beam, DraftState, Shape
from medusakit.drafters.heads import HeadsDrafter
from medusakit.drafters.plan import beam_sizes, check_beam, draft_of_beam, draft_of_topology
from medusakit.drafters.recurrent.graph import Cell, Kind, build_recurrent
from medusakit.drafters.rows import TableRows, rms_normalised
from medusakit.models.spec import WeightSource
from medusakit.runtimes.onnx.session import make_session
from medusakit.tree.topology import Draft, FloatArray, IntArray

Arrays = dict[str, np.ndarray[Any, Any]]


class RecurrentDrafter(HeadsDrafter):
    """Drafts along a tree or a beam, token by token. A family gives its cell, and the inputs that the cell declares."""

    def _prepare(self, config: DrafterConfig, source: WeightSource) -> None:
        self._cell = self._make_cell(config, source.spec.hidden_size)
        self._embedding = TableRows.embedding(source)
        tied = source.spec.tied_embeddings
        self._draft_embedding = self._head_rows if tied else self._embedding.take(self._draft_ids)
        self._sessions: dict[tuple[Kind, int], Any] = {}

    def _make_cell(self, config: DrafterConfig, hidden_size: int) -> Cell:
        """Raises ArtifactError for parameters that the family does not know."""
        raise NotImplementedError

    def _context(self, states: Sequence[DraftState]) -> Arrays:
        """What the cell reads besides hidden state and root."""
        return {}

    def _learn(self, states: Sequence[DraftState], found: Arrays) -> None:
        """Outputs of the draft that are worth keeping for the next one."""

    def propose(self, states: Sequence[DraftState], shape: Shape) -> list[Draft]:
        if isinstance(shape, Beam):
            return self._propose_beam(states, shape)
        levels = self._levels(shape)
        if not levels:
            return [Draft(shape, np.array([state.root_id]), np.zeros(1, np.float32)) for state in states]
        feeds: Arrays = {}
        for depth, level in enumerate(levels):
            feeds[f"branching_{depth}"] = np.array([level.branching])
            if depth + 1 < len(levels):
                feeds[f"take_{depth}"] = level.flat()[level.expanded]
        found = self._run("topology", len(levels), states, feeds)
        return [
            draft_of_topology(shape, levels, state.root_id, self._tables(found, len(levels), row))
            for row, state in enumerate(states)
        ]

    def _propose_beam(self, states: Sequence[DraftState], beam: Beam) -> list[Draft]:
        check_beam(beam, max_depth=self._depth)
        branching, widths = beam_sizes(beam, len(self._draft_ids))
        feeds: Arrays = {}
        for depth, width in enumerate(widths):
            feeds |= {f"branching_{depth}": np.array([branching]), f"width_{depth}": np.array([width])}
        found = self._run("beam", len(widths), states, feeds)
        return [
            draft_of_beam(
                state.root_id,
                [found[f"chosen_{k}"][row] for k in range(len(widths))],
                branching,
                self._tables(found, len(widths), row),
            )
            for row, state in enumerate(states)
        ]

    def _run(self, kind: Kind, levels: int, states: Sequence[DraftState], feeds: Arrays) -> Arrays:
        feeds["hidden"] = np.stack([state.hidden for state in states])
        feeds["root"] = self._embedded([state.root_id for state in states])
        feeds |= self._context(states)
        session = self._session(kind, levels)
        names = [output.name for output in session.get_outputs()]
        found: Arrays = dict(zip(names, session.run(names, feeds), strict=True))
        self._learn(states, found)
        return found

    def _embedded(self, ids: Sequence[int]) -> FloatArray:
        """[n, d] rms(e(token))."""
        return rms_normalised(np.stack([self._embedding.one(token) for token in ids]))

    def _session(self, kind: Kind, levels: int) -> Any:
        if (kind, levels) not in self._sessions:
            graph = build_recurrent(
                self._cell,
                kind=kind,
                levels=levels,
                head_rows=self._head_rows,
                embedding_rows=self._draft_embedding,
                quantised=self._quantised,
            )
            self._sessions[kind, levels] = make_session(graph, threads=self._threads)
        return self._sessions[kind, levels]

    def _tables(self, found: Arrays, levels: int, row: int) -> list[tuple[IntArray, FloatArray]]:
        return [(self._draft_ids[found[f"ids_{k}"][row]], found[f"logprobs_{k}"][row]) for k in range(levels)]
