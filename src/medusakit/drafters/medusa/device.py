"""The paper's parallel heads on the model's device: the best guesses of every depth, from one graph.

[R, depth, 2, GUESSES] int32: token ids, and their log-probs as the bits of float32
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from medusakit.artifact.schema import DrafterConfig
from medusakit.drafters.base import DraftState
from medusakit.drafters.device import DeviceDraft, loaded, on_device
from medusakit.drafters.medusa.config import MedusaParams
from medusakit.drafters.medusa.drafter import MedusaDrafter
from medusakit.drafters.medusa.torch import MedusaNet
from medusakit.drafters.plan import Table
from medusakit.models.spec import WeightSource
from medusakit.runtimes.torch.device.runtime import DeviceRuntime
from medusakit.tree.topology import FloatArray, IntArray

GUESSES = 16  # a depth: more than trees ask for under one node; what asks for more runs on the CPU


class MedusaReader:
    """A `Reader` that gives tables. draft_ids [Vd]; rows [Vd, d]: the LM head's, for a shared projection."""

    def __init__(
        self,
        params: MedusaParams,
        depth: int,
        tensors: dict[str, np.ndarray[Any, Any]],
        draft_ids: IntArray,
        rows: FloatArray,
        runtime: DeviceRuntime,
    ) -> None:
        first = torch.from_numpy(rows) if params.projection == "own" else None
        self._net = loaded(lambda: MedusaNet(params, depth, rows.shape[1], first), tensors, runtime)
        self._rows = on_device(rows, runtime) if params.projection == "shared" else None
        self._ids = torch.from_numpy(draft_ids).to(runtime.model.device)
        self._depth, self.guesses = depth, min(GUESSES, len(draft_ids))

    @property
    def width(self) -> int:
        return self._depth * 2 * self.guesses

    def __call__(self, hidden: Any, root_ids: Any) -> Any:
        places = torch.arange(len(hidden), device=hidden.device)
        states = torch.stack(list(self._net(hidden[:, None], None, (places, torch.zeros_like(places)))))
        if self._rows is not None:
            logits = functional.linear(states, self._rows)
        else:
            logits = torch.einsum("krd,kvd->krv", states, self._net.projection)
        logprobs, best = logits.float().log_softmax(-1).topk(self.guesses)
        both = torch.stack([self._ids[best].int(), logprobs.view(torch.int32)], 2)  # [depth, R, 2, guesses]
        return both.transpose(0, 1).reshape(len(hidden), -1)


class DeviceMedusaDrafter(MedusaDrafter):
    """As `MedusaDrafter`, whose heads come with the runtime's step."""

    _runtime: DeviceRuntime

    def _prepare(self, config: DrafterConfig, source: WeightSource) -> None:
        super()._prepare(config, source)
        reader = MedusaReader(self._params, self._depth, self._tensors, self._draft_ids, self._head_rows, self._runtime)
        self._most, self._draft = reader.guesses, DeviceDraft(self._runtime, reader)

    def _tables(self, states: Sequence[DraftState], depth: int, branching: int) -> list[list[Table]]:
        if branching > self._most:
            return super()._tables(states, depth, branching)
        numbers = self._draft.numbers(states).reshape(len(states), self._depth, 2, self._most)[..., :branching]
        ids, logprobs = numbers[:, :, 0].astype(np.int64), np.ascontiguousarray(numbers[:, :, 1]).view(np.float32)
        return [[(ids[row, head][None], logprobs[row, head][None]) for head in range(depth)] for row in range(len(ids))]
