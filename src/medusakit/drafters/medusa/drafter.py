"""The paper's parallel heads at work: one session, one call per draft, as many rows as there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from medusakit.artifact.schema import DrafterConfig
from medusakit.drafters.base import DraftState
from medusakit.drafters.heads import HeadsDrafter
from medusakit.drafters.medusa.config import FAMILY, medusa_params
from medusakit.drafters.medusa.graph import build_medusa
from medusakit.drafters.plan import Level, Table, beam_sizes, check_beam, draft_of_beam, draft_of_topology
from medusakit.models.spec import WeightSource
from medusakit.runtimes.onnx.session import make_session
from medusakit.tree.topology import Beam, Draft, Shape


class MedusaDrafter(HeadsDrafter):
    """Every depth is guessed from h_t alone (Medusa-1, 2401.10774)."""

    name = FAMILY

    def _prepare(self, config: DrafterConfig, source: WeightSource) -> None:
        self._params = medusa_params(config)
        self._sessions: dict[int, Any] = {}

    def propose(self, states: Sequence[DraftState], shape: Shape) -> list[Draft]:
        if isinstance(shape, Beam):
            return self._propose_beam(states, shape)
        levels = self._levels(shape)
        if not levels:
            return [Draft(shape, np.array([state.root_id]), np.zeros(1, np.float32)) for state in states]
        tables = self._tables(states, len(levels), max(level.branching for level in levels))
        drafts = []
        for state, row in zip(states, tables, strict=True):
            repeated = [_repeated(table, level) for table, level in zip(row, levels, strict=True)]
            drafts.append(draft_of_topology(shape, levels, state.root_id, repeated))
        return drafts

    def _propose_beam(self, states: Sequence[DraftState], beam: Beam) -> list[Draft]:
        check_beam(beam, max_depth=self._depth)
        branching, widths = beam_sizes(beam, len(self._draft_ids))
        tables = self._tables(states, len(widths), branching)
        return [_grown(state.root_id, row, widths, branching) for state, row in zip(states, tables, strict=True)]

    def _tables(self, states: Sequence[DraftState], depth: int, branching: int) -> list[list[Table]]:
        """Per row and depth, the best guesses: [1, branching]."""
        feeds = {"hidden": np.stack([state.hidden for state in states]), "branching": np.array([branching])}
        ids, logprobs = self._session(depth).run(["ids", "logprobs"], feeds)
        tokens = self._draft_ids[ids]
        return [
            [(tokens[row, head][None], logprobs[row, head][None]) for head in range(depth)]
            for row in range(len(states))
        ]

    def _session(self, depth: int) -> Any:
        if depth not in self._sessions:
            graph = build_medusa(
                self._tensors, self._params, depth=depth, head_rows=self._head_rows, quantised=self._quantised
            )
            self._sessions[depth] = make_session(graph, threads=self._threads)
        return self._sessions[depth]


def _repeated(table: Table, level: Level) -> Table:
    """The same guesses under every parent."""
    parents = int(level.parent_places.max()) + 1
    return np.repeat(table[0], parents, axis=0), np.repeat(table[1], parents, axis=0)


def _grown(root_id: int, tables: Sequence[Table], widths: Sequence[int], branching: int) -> Draft:
    """A beam over independent depths: keep the most probable paths of every level."""
    total = np.zeros(1, np.float32)
    chosen, repeated = [], []
    for table, width in zip(tables, widths, strict=True):
        scores = (total[:, None] + table[1]).reshape(-1)
        places = np.argsort(-scores, kind="stable")[:width]
        chosen.append(places)
        repeated.append((np.repeat(table[0], len(total), axis=0), np.repeat(table[1], len(total), axis=0)))
        total = scores[places]
    return draft_of_beam(root_id, chosen, branching, repeated)
