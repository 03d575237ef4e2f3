"""Drafts along the successors that the verifier itself ranked highest the last time, token by token."""

from __future__ import annotations

from collections.abc import Sequence

from medusakit.drafters.base import DraftState
from medusakit.drafters.recycling.table import SuccessorTable
from medusakit.drafters.trie import grow
from medusakit.runtimes.base import Ranked, Scores
from medusakit.tree.topology import Beam, Draft, FloatArray, Shape, Tree

FAMILY = "recycling"
BEAM = Beam((8, 8, 8, 6, 4, 4, 2, 2))


class RecyclingDrafter:
    """What a step's scores say of the nodes that were refused is kept too: they are what the model might say next time.

    A `StepReader`. One table for all rows; its memory is fixed (see `SuccessorTable`).
    """

    name = FAMILY
    max_depth = len(BEAM.widths)

    def __init__(self, vocab_size: int) -> None:
        self._table = SuccessorTable(vocab_size)

    def propose(self, states: Sequence[DraftState], shape: Shape) -> list[Draft]:
        return [grow(state.root_id, state.root_id, self._table.guesses, shape) for state in states]

    def observe(self, row: int, kept_ids: Sequence[int], hidden: FloatArray) -> None:
        """Scores, not states, are what is learnt from: see `read_step`."""

    def read_step(self, row: int, tree: Tree, kept: Sequence[int], scores: Scores) -> None:
        """Store the successors of every node's token. Kept nodes last: theirs stand in the text as it goes on."""
        tokens = tree.tokens.tolist()
        refused = sorted(set(range(tree.num_nodes)).difference(kept))
        if isinstance(scores, Ranked):
            ids, best = scores.best(self._table.num_successors)
            for node in (*refused, *kept):
                self._table.put(tokens[node], ids[node], best[node])
            return
        for node in (*refused, *kept):
            self._table.store(tokens[node], scores.logits(node))

    def forget(self, row: int) -> None:
        """Nothing is kept by row."""
