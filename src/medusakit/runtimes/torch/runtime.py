"""Runtime `torch`: any causal language model of transformers through its own forward, on the CPU or a device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from medusakit.errors import RuntimeFailure
from medusakit.models.spec import ModelSpec
from medusakit.runtimes.base import Capabilities, RowMemory, Scores
from medusakit.runtimes.rows import KvRows, Segment, check_distinct
from medusakit.runtimes.torch.cache import TreeCache
from medusakit.runtimes.torch.masks import tree_masks
from medusakit.runtimes.torch.model import CausalModel
from medusakit.runtimes.torch.scores import TorchScores, as_numpy
from medusakit.tree.topology import FloatArray, Tree

_CHUNK = 256  # prompt positions a pass: attention scores of a chunk stay in some tens of megabytes
_KEPT_BYTES = 64 << 20  # of KV buffers, which the next row writes instead of growing its own


class TorchRuntime(KvRows[Segment]):
    """A `Runtime` whose KV lies in a `TreeCache`.

    windows  what the attention layers see, by kind (`layer_windows`); None: the model makes its own masks, which
             are for texts that only go on, so trees must be chains
    """

    def __init__(
        self, model: CausalModel, spec: ModelSpec, capabilities: Capabilities, windows: Mapping[str, int] | None
    ) -> None:
        super().__init__(spec, capabilities)
        self.model, self._windows = model, windows
        self._cache = self._make_cache()

    def add_row(self) -> int:
        return self._take_row()

    def drop_row(self, row: int) -> None:
        self._cache.wipe(self._slot(row))
        self._forget_row(row)
        if not self._slots:
            self._idle()

    def prefill(self, row: int, ids: Sequence[int]) -> TorchScores:
        hidden, logits = self._append(row, ids)[-1]
        return TorchScores(logits[0, -1:], hidden[0, -1:])

    def hidden_states(self, row: int, ids: Sequence[int]) -> FloatArray:
        return np.concatenate([as_numpy(hidden[0]) for hidden, _ in self._append(row, ids)])

    def forward(self, trees: Sequence[tuple[int, Tree]]) -> Sequence[Scores]:
        check_distinct([row for row, _ in trees])
        segments = [self._segment(row, tree) for row, tree in trees]
        if self._windows is None:  # its own masks know one row at a time
            scores: Sequence[Scores] = [self._scores([segment])[0] for segment in segments]
        else:
            scores = self._scores(segments)
        self._pending.update((row, segment) for (row, _), segment in zip(trees, segments, strict=True))
        return scores

    def commit(self, row: int, nodes: Sequence[int]) -> None:
        segment, kept = self._committed(row, nodes), list(nodes)
        if kept != list(range(len(kept))):  # otherwise they lie where they belong
            self._cache.move(segment.slot, [segment.length + node for node in kept], segment.length)

    def fill(self, row: int, length: int) -> None:
        self._check_context(length)
        self._make_room(row, length)
        self._lengths[row] = length

    def save(self, row: int) -> RowMemory:
        parts = self._cache.save(self._slot(row), self._lengths[row])
        return RowMemory(self._lengths[row], tuple(_bits(part) for part in parts))

    def restore(self, row: int, memory: RowMemory, length: int) -> None:
        self._check_empty(row, memory, length)
        self._make_room(row, length)
        parts = [_floats(part, self.model.dtype).to(self.model.device) for part in memory.arrays]
        self._cache.restore(self._slot(row), parts, length)
        self._lengths[row] = length

    def close(self) -> None:
        """Give back the memory and leave the model as it was; the runtime is of no use afterwards."""
        self.model.close()
        self._cache.clear()
        self._slots.clear()

    def own_scores(self, row: int, token_id: int) -> FloatArray:
        """[V] scores after one more token, with the masks that the model makes itself; nothing is kept. For the probe
        of windows."""
        _, logits = self._pass([Segment(self._slot(row), self._lengths[row], self._checked([token_id]))], own=True)
        return as_numpy(logits[0, -1])

    def _make_cache(self) -> TreeCache:
        return TreeCache(self._spec.num_layers)

    def _idle(self) -> None:
        """No row is left: give the memory back, unless it is little."""
        if self._cache.num_bytes > _KEPT_BYTES:
            self._cache.clear()

    def _make_room(self, row: int, length: int) -> None:
        self._cache.aim([self._slot(row)], [0], length)
        self._cache.grow()

    def _append(self, row: int, ids: Sequence[int]) -> list[tuple[Any, Any]]:
        """Run `ids` in chunks; per chunk (hidden states of all positions, logits of the last)."""
        slot, tokens = self._slot(row), self._checked(ids)
        self._check_context(self._lengths[row] + len(tokens))
        self._pending.pop(row, None)
        chunks = []
        for start in range(0, len(tokens), _CHUNK):
            segment = Segment(slot, self._lengths[row], tokens[start : start + _CHUNK])
            chunks.append(self._pass([segment], last_only=True))
            self._lengths[row] += segment.num_nodes
        return chunks

    def _segment(self, row: int, tree: Tree) -> Segment:
        slot, topology = self._slot(row), tree.topology
        self._check_context(self._lengths[row] + topology.max_depth + 1)
        if self._windows is None and topology.max_depth != topology.num_nodes - 1:
            raise RuntimeFailure(
                f"a tree of {topology.num_nodes} nodes is {topology.max_depth} deep, but this model runs chains only: "
                f"{self._capabilities.limit}",
                hint="--max-leaves 1",
            )
        return Segment(slot, self._lengths[row], self._checked(tree.tokens), topology)

    def _scores(self, segments: Sequence[Segment]) -> Sequence[Scores]:
        hidden, logits = self._pass(segments)
        return [
            TorchScores(logits[row, : segment.num_nodes], hidden[row, : segment.num_nodes])
            for row, segment in enumerate(segments)
        ]

    def _pass(self, segments: Sequence[Segment], *, last_only: bool = False, own: bool = False) -> tuple[Any, Any]:
        """(hidden [rows, n, d], logits [rows, n or 1, V]) of a pass, shorter rows padded to the longest."""
        width = max(segment.num_nodes for segment in segments)
        ids, positions = np.zeros((2, len(segments), width), np.int64)
        for row, segment in enumerate(segments):
            ids[row, : segment.num_nodes] = segment.ids
            positions[row] = segment.length
            positions[row, : segment.num_nodes] += segment.depths
        device, mask = self.model.device, None
        if self._windows is not None and not own:
            mask = tree_masks(segments, self._windows, self.model.dtype, device)
        with failing(segments):
            self._cache.aim([segment.slot for segment in segments], [segment.length for segment in segments], width)
            hidden, logits, _ = self.model.run(
                torch.from_numpy(ids).to(device),
                cache=self._cache,
                positions=torch.from_numpy(positions).to(device),
                mask=mask,
                last_only=last_only,
            )
        return hidden, logits


@contextmanager
def failing(segments: Sequence[Segment]) -> Iterator[None]:
    """What torch raises in a pass, for people."""
    try:
        yield
    except RuntimeError as error:
        raise RuntimeFailure(
            f"the forward pass of {[segment.num_nodes for segment in segments]} nodes failed: {error}",
            hint="a smaller --max-context or --budget if memory is short; medusa doctor   tells what there is",
        ) from error


def _bits(tensor: Any) -> np.ndarray[Any, Any]:
    """As NumPy holds it: bfloat16, which it lacks, as the same bits in int16."""
    array: np.ndarray[Any, Any] = (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array


def _floats(array: np.ndarray[Any, Any], dtype: Any) -> Any:
    tensor = torch.from_numpy(array)
    return tensor.view(dtype) if dtype == torch.bfloat16 and tensor.dtype == torch.int16 else tensor
