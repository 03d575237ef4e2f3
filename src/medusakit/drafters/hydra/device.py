"""The recurrent heads on the model's device: a whole beam, level after level, from one graph.

    [R, levels x (parents x branching) x 2 + chosen] int32: per level the token ids and log-probs (as bits) of the best
    guesses under every parent, then which of them the beam keeps

A beam's levels are never cut short here: on a device a level costs less than asking whether it pays.
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
from medusakit.drafters.hydra.config import HydraParams, hydra_params
from medusakit.drafters.hydra.drafter import HydraDrafter
from medusakit.drafters.hydra.torch import HydraNet
from medusakit.drafters.plan import Table, beam_sizes, check_beam, draft_of_beam
from medusakit.drafters.recurrent.torch import rms
from medusakit.models.spec import WeightSource
from medusakit.runtimes.torch.device.runtime import DeviceRuntime
from medusakit.runtimes.torch.device.step import Ints32
from medusakit.tree.topology import Beam, Draft, FloatArray, IntArray

Sizes = tuple[int, tuple[int, ...]]


class HydraWeights:
    """On the device, for beams of any size."""

    def __init__(
        self,
        params: HydraParams,
        depth: int,
        tensors: dict[str, np.ndarray[Any, Any]],
        draft_ids: IntArray,
        rows: FloatArray,
        runtime: DeviceRuntime,
    ) -> None:
        self.net = loaded(lambda: HydraNet(params, depth, rows.shape[1]), tensors, runtime)
        self.rows, self.ids = on_device(rows, runtime), torch.from_numpy(draft_ids).to(runtime.model.device)
        self.embedding = runtime.model.hf.get_input_embeddings().weight

    def embedded(self, ids: Any) -> Any:
        """[N, d] rms(e(token))."""
        return rms(self.embedding[ids].float()).to(self.rows.dtype)


class HydraReader:
    """A `Reader` that gives beams of one size. sizes: guesses under a node, nodes kept of every level."""

    def __init__(self, weights: HydraWeights, sizes: Sizes) -> None:
        self._weights, self._sizes = weights, sizes

    @property
    def width(self) -> int:
        branching, widths = self._sizes
        return sum(2 * parents * branching for parents in (1, *widths[:-1])) + sum(widths)

    def __call__(self, hidden: Any, root_ids: Any) -> Any:
        weights, (branching, widths) = self._weights, self._sizes
        state, embedded = (hidden,), weights.embedded(root_ids)
        rows = len(hidden)
        totals = torch.zeros(rows, 1, device=hidden.device)
        parts = []
        for depth, width in enumerate(widths):
            state, reads = weights.net.cell(state, embedded, depth)
            logprobs, best = functional.linear(reads, weights.rows).float().log_softmax(-1).topk(branching)
            tokens, logprobs = weights.ids[best].view(rows, -1), logprobs.view(rows, -1)  # [R, parents x branching]
            paths = totals.repeat_interleave(branching, 1) + logprobs
            totals, taken = paths.topk(width)
            parts += [tokens.int(), logprobs.contiguous().view(torch.int32), taken.int()]
            if depth + 1 < len(widths):
                embedded = weights.embedded(tokens.gather(1, taken).reshape(-1))
                parents = state[0].view(rows, -1, state[0].shape[1])
                places = (taken // branching)[:, :, None].expand(-1, -1, parents.shape[2])
                state = (parents.gather(1, places).reshape(-1, parents.shape[2]),)
        return torch.cat(parts, 1)


class DeviceHydraDrafter(HydraDrafter):
    """As `HydraDrafter`, whose beams come with the runtime's step; trees of a given shape are drafted on the CPU."""

    _runtime: DeviceRuntime

    def _prepare(self, config: DrafterConfig, source: WeightSource) -> None:
        super()._prepare(config, source)
        self._drafts = dict[Sizes, DeviceDraft]()
        self._weights = HydraWeights(
            hydra_params(config), self._depth, self._tensors, self._draft_ids, self._head_rows, self._runtime
        )

    def _along_beam(self, states: Sequence[DraftState], beam: Beam) -> list[Draft]:
        check_beam(beam, max_depth=self._depth)
        sizes = beam_sizes(beam, len(self._draft_ids))
        if sizes not in self._drafts:
            self._drafts[sizes] = DeviceDraft(self._runtime, HydraReader(self._weights, sizes))
        numbers = self._drafts[sizes].numbers(states)
        return [_grown(state.root_id, row, sizes) for state, row in zip(states, numbers, strict=True)]


def _grown(root_id: int, numbers: Ints32, sizes: Sizes) -> Draft:
    branching, widths = sizes
    tables, chosen, at = list[Table](), list[IntArray](), 0
    for parents, width in zip((1, *widths[:-1]), widths, strict=True):
        size = parents * branching
        ids, logprobs = numbers[at : at + size], numbers[at + size : at + 2 * size].view(np.float32)
        tables.append((ids.astype(np.int64).reshape(parents, -1), logprobs.reshape(parents, -1)))
        chosen.append(numbers[at + 2 * size : at + 2 * size + width].astype(np.int64))
        at += 2 * size + width
    return draft_of_beam(root_id, chosen, branching, tables)
