"""A recurrent drafter at work: level by level, all rows together."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any, NamedTuple

import numpy as np

from medusakit.artifact.schema import DrafterConfig
from medusakit.drafters.base import DraftState
from medusakit.drafters.heads import HeadsDrafter
from medusakit.drafters.plan import Table, beam_sizes, check_beam, draft_of_beam, draft_of_topology
from medusakit.drafters.recurrent.graph import Cell, build_level, build_start
from medusakit.drafters.rows import TableRows, rms_normalised
from medusakit.models.spec import WeightSource
from medusakit.runtimes.onnx.session import make_session
from medusakit.tree.topology import Beam, Draft, FloatArray, IntArray, Shape, Topology

Arrays = dict[str, np.ndarray[Any, Any]]
State = list[FloatArray]


class Guesses(NamedTuple):
    """What a level says of N nodes: their next state [N, w_i], places in the draft vocabulary and log-probs [N, B]."""

    state: State
    places: IntArray
    logprobs: FloatArray


class Front(NamedTuple):
    """What a level reads: of N nodes state [N, w_i] and rms(e(token)) [N, d]; of their rows what the start made for
    every level [R, ...]."""

    state: State
    embedded: FloatArray
    shared: Arrays


class RecurrentDrafter(HeadsDrafter):
    """Drafts along a tree or a beam, token by token. A family gives its cell, and the inputs that the cell declares."""

    def _prepare(self, config: DrafterConfig, source: WeightSource) -> None:
        cell = self._cell = self._make_cell(config, source.spec.hidden_size)
        self._embedding = TableRows.embedding(source)
        tied = source.spec.tied_embeddings
        rows = self._head_rows if tied else self._embedding.take(self._draft_ids)
        self._draft_embedding = rms_normalised(rows).astype(np.float16 if self._quantised else np.float32)
        self._level = make_session(build_level(cell, self._head_rows, quantised=self._quantised), threads=self._threads)
        self._start: Any = None
        if cell.has_start:
            graph = build_start(cell, source.spec.hidden_size, quantised=self._quantised)
            self._start = make_session(graph, threads=self._threads)

    def _make_cell(self, config: DrafterConfig, hidden_size: int) -> Cell:
        """Raises ArtifactError for parameters that the family does not know."""
        raise NotImplementedError

    def _context(self, states: Sequence[DraftState]) -> Arrays:
        """What the cell's start reads besides hidden state and root."""
        return {}

    def _learn(self, states: Sequence[DraftState], found: Arrays) -> None:
        """Outputs of the start that are worth keeping for the next draft."""

    def propose(self, states: Sequence[DraftState], shape: Shape) -> list[Draft]:
        if isinstance(shape, Beam):
            return self._along_beam(states, shape)
        return self._along_topology(states, shape)

    def _along_topology(self, states: Sequence[DraftState], shape: Topology) -> list[Draft]:
        levels, tables = self._levels(shape), []
        if levels:
            front = self._begun(states)
        for depth, level in enumerate(levels):
            found = self._guess(front, depth, level.branching)
            tables.append(found)
            if depth + 1 < len(levels):
                take = np.tile(level.flat()[level.expanded], (len(states), 1))
                front = self._followed(front, found, take, np.arange(len(states)))
        return [
            draft_of_topology(shape, levels, state.root_id, [self._table(found, row, len(states)) for found in tables])
            for row, state in enumerate(states)
        ]

    def _along_beam(self, states: Sequence[DraftState], beam: Beam) -> list[Draft]:
        """Rows whose paths have all become improbable are drafted no further."""
        check_beam(beam, max_depth=self._depth)
        branching, widths = beam_sizes(beam, len(self._draft_ids))
        least = log(max(beam.least, 1e-30))
        rows = list(range(len(states)))
        totals = np.zeros((len(rows), 1), np.float32)
        chosen: list[list[IntArray]] = [[] for _ in rows]
        tables: list[list[Table]] = [[] for _ in rows]
        front = self._begun(states)
        for depth, width in enumerate(widths):
            found = self._guess(front, depth, branching)
            paths = (totals[:, :, None] + found.logprobs.reshape(*totals.shape, branching)).reshape(len(rows), -1)
            take = np.argsort(-paths, axis=1, kind="stable")[:, :width]
            totals = np.take_along_axis(paths, take, axis=1)
            for place, row in enumerate(rows):
                chosen[row].append(take[place])
                tables[row].append(self._table(found, place, len(rows)))
            going_on = np.flatnonzero(totals[:, 0] >= least)
            if depth + 1 == len(widths) or not len(going_on):
                break
            front = self._followed(front, found, take, going_on)
            rows, totals = [rows[place] for place in going_on], totals[going_on]
        return [draft_of_beam(state.root_id, chosen[row], branching, tables[row]) for row, state in enumerate(states)]

    def _begun(self, states: Sequence[DraftState]) -> Front:
        """Before the roots are read."""
        hidden = np.stack([state.hidden for state in states])
        root = self._embedded([state.root_id for state in states])
        if self._start is None:
            return Front([hidden], root, {})
        names = [output.name for output in self._start.get_outputs()]
        feeds = {"hidden": hidden, "root": root, **self._context(states)}
        found: Arrays = dict(zip(names, self._start.run(names, feeds), strict=True))
        self._learn(states, found)
        state = [found[f"state_{part}"] for part in range(len(self._cell.widths))]
        return Front(state, root, {name: found[name] for name in self._cell.shared})

    def _guess(self, front: Front, depth: int, branching: int) -> Guesses:
        feeds: Arrays = {f"state_{part}": value for part, value in enumerate(front.state)}
        feeds |= {"embedded": front.embedded, "level": np.array([depth]), "branching": np.array([branching])}
        names = [*(f"next_{part}" for part in range(len(front.state))), "ids", "logprobs"]
        *following, places, logprobs = self._level.run(names, feeds | front.shared)
        return Guesses(following, places, logprobs)

    def _followed(self, front: Front, found: Guesses, take: IntArray, rows: IntArray) -> Front:
        """The nodes that are drafted on.

        take  [R, m] flat places in each row's part of the level's table; rows: which of the R go on
        """
        num_rows, branching = len(take), found.places.shape[1]
        table = found.places.size // num_rows
        places = (take + table * np.arange(num_rows)[:, None])[rows].reshape(-1)
        tokens = found.places.reshape(-1)[places]
        shared = front.shared
        if len(rows) < num_rows:
            shared = {name: value[rows] for name, value in shared.items()}
        embedded = self._draft_embedding[tokens].astype(np.float32)
        return Front([part[places // branching] for part in found.state], embedded, shared)

    def _embedded(self, ids: Sequence[int]) -> FloatArray:
        """[n, d] rms(e(token))."""
        return rms_normalised(np.stack([self._embedding.one(token) for token in ids]))

    def _table(self, found: Guesses, row: int, num_rows: int) -> Table:
        """Of one row."""
        parents = len(found.places) // num_rows
        mine = slice(row * parents, (row + 1) * parents)
        return self._draft_ids[found.places[mine]], found.logprobs[mine]
