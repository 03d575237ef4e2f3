"""`Scores` of one row of a prepared pass: what the step's one read brought, the rest from the device when asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from medusakit.runtimes.torch.device.step import Result
from medusakit.tree.topology import FloatArray, IntArray


class PackedScores:
    """slot: the row's; logits [n, V] and hidden [n, d] float32 on the device."""

    def __init__(self, result: Result, slot: int, num_nodes: int, logits: Any, hidden: Any) -> None:
        self._num_nodes, self._logits, self._hidden = num_nodes, logits, hidden
        self._picks = result.picks[slot].tolist()
        self.path = result.paths[slot, : int(result.counts[slot])].tolist()
        along = result.hidden[slot]
        self._known_hidden: dict[int, FloatArray] = dict(zip(self.path, along, strict=False))
        self._known_logits: dict[int, FloatArray] = {}

    @property
    def num_nodes(self) -> int:
        return self._num_nodes

    def argmax(self, node: int) -> int:
        return int(self._picks[node])

    def logits(self, node: int) -> FloatArray:
        if node not in self._known_logits:
            row = self._logits[node].cpu().numpy()
            row.setflags(write=False)
            self._known_logits[node] = row
        return self._known_logits[node]

    def best(self, count: int) -> tuple[IntArray, FloatArray]:
        """See `Ranked`: one more read, of all nodes."""
        scores, ids = self._logits[: self._num_nodes].topk(count)
        both = torch.stack([ids.int(), scores.view(torch.int32)]).cpu().numpy()
        return both[0].astype(np.int64), both[1].view(np.float32)

    def hidden(self, node: int) -> FloatArray:
        if node not in self._known_hidden:
            self._known_hidden[node] = np.asarray(self._hidden[node].cpu().numpy())
        return self._known_hidden[node]
