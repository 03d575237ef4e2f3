"""A verify pass of fixed shapes: numbers in, one small result out, all else in buffers on the device.

The host writes a tree's numbers (tokens, parents, depths, ancestors as bits) in one copy and reads, in one copy, the
best token after every node, the path that greedy decoding accepts, and the hidden states along it. Scores stay on the
device until somebody asks for a node's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch

from medusakit.runtimes.torch.device.attention import TreeAttention
from medusakit.runtimes.torch.device.buckets import MAX_NODES, Bucket
from medusakit.runtimes.torch.device.ontree import accepted_path, masks_by_kind, unpacked
from medusakit.runtimes.torch.device.pools import PooledCache, Target
from medusakit.runtimes.torch.model import CausalModel
from medusakit.tree.topology import IntArray

PATH = 8  # nodes of the accepted path whose hidden states come with the result; later ones are read when asked for
READER_WIDTH = 4096  # int32 numbers a row that a reader may add to the result
FIELDS = 4  # numbers a node: token, parent, depth, ancestors

Ints32 = np.ndarray[Any, np.dtype[np.int32]]


class Reader(Protocol):
    """What else a step works out where the accepted path ends, so that the step's one read brings it too."""

    @property
    def width(self) -> int:
        """int32 numbers a row."""
        ...

    def __call__(self, hidden: Any, root_ids: Any) -> Any:
        """[R, width] int32 on the device, from hidden states [R, d] at the paths' ends and the tokens [R] after them.
        Only work that a graph can hold."""
        ...


class Buffers:
    """Memory of the steps of up to `num_rows` rows, shared by all buckets: they run one after the other."""

    def __init__(self, model: CausalModel, num_rows: int) -> None:
        device = model.device
        pinned = device.type == "cuda"
        taken, given = num_rows * (FIELDS * MAX_NODES + 2), num_rows * _result_width(MAX_NODES, model, READER_WIDTH)
        self.host_numbers = torch.zeros(taken, dtype=torch.int64, pin_memory=pinned)
        self.numbers = torch.zeros(taken, dtype=torch.int64, device=device)
        self.logits = torch.zeros(num_rows * MAX_NODES, model.vocab_size, device=device)
        self.hidden = torch.zeros(num_rows * MAX_NODES, model.hidden_size, device=device)
        self.result = torch.zeros(given, dtype=torch.int32, device=device)
        self.host_result = torch.zeros(given, dtype=torch.int32, pin_memory=pinned)


class Result:
    """What a step read back. picks [R, n]; counts [R] and paths [R, n]: accepted nodes; hidden [R, PATH or n, d] along
    the path; extra [R, width]. Views of a buffer that the next step overwrites."""

    def __init__(self, numbers: Ints32, nodes: int, hidden_size: int) -> None:
        ends = 2 * nodes + 1 + min(nodes, PATH) * hidden_size
        self.picks, self.counts, self.paths = (
            numbers[:, :nodes],
            numbers[:, nodes],
            numbers[:, nodes + 1 : 2 * nodes + 1],
        )
        states = numbers[:, 2 * nodes + 1 : ends].view(np.float32)
        self.hidden = states.reshape(len(numbers), -1, hidden_size)
        self.extra = numbers[:, ends:]


class Step:
    """The pass of one bucket. Calling it runs the model: only tensors say on what."""

    def __init__(
        self,
        model: CausalModel,
        cache: PooledCache,
        buffers: Buffers,
        bucket: Bucket,
        windows: Mapping[str, int],
        reader: Callable[[], Reader | None],
        attention: TreeAttention,
    ) -> None:
        self._model, self._cache, self.bucket, self._windows = model, cache, bucket, windows
        self._attention = attention
        attention.chosen(bucket)  # measured now: a capture cannot hold a clock
        self._reader, self._scratch = reader, cache.num_cells
        known = reader()
        self.reads = known is not None
        rows, nodes, _ = bucket
        taken = FIELDS * nodes + 2
        width = _result_width(nodes, model, 0 if known is None else known.width)
        self._host_numbers = buffers.host_numbers[: rows * taken].view(rows, taken)
        self._numbers = buffers.numbers[: rows * taken].view(rows, taken)
        self._host_result = buffers.host_result[: rows * width].view(rows, width)
        self._result = buffers.result[: rows * width].view(rows, width)
        self.logits = buffers.logits[: rows * nodes].view(rows, nodes, -1)
        self.hidden = buffers.hidden[: rows * nodes].view(rows, nodes, -1)

    def write(self, rows: Mapping[int, tuple[IntArray, IntArray, int]]) -> None:
        """By slot: token ids [m], the shape's parents, depths and ancestors [3, m], positions that the row holds. All
        other slots are padding."""
        numbers, nodes = self._host_numbers.numpy(), self.bucket.nodes
        numbers[:] = 0
        for slot, (ids, shape, length) in rows.items():
            fields = numbers[slot, : FIELDS * nodes].reshape(FIELDS, nodes)
            fields[0, : len(ids)], fields[1:, : len(ids)] = ids, shape
            numbers[slot, -2:] = length, len(ids)
        self._numbers.copy_(self._host_numbers, non_blocking=True)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def __call__(self) -> None:
        rows, nodes, cells = self.bucket
        tokens, parents, depths, bits = self._numbers[:, : FIELDS * nodes].view(rows, FIELDS, nodes).unbind(1)
        lengths, counts = self._numbers[:, -2:-1], self._numbers[:, -1:]
        order, sees = torch.arange(nodes, device=tokens.device), unpacked(bits)
        real = order < counts
        mask = masks_by_kind(sees, depths, lengths, cells, self._windows, self._model.dtype)
        slots = torch.arange(rows, device=tokens.device)[:, None]
        written = (lengths + order).masked_fill(~real, self._scratch)
        with self._cache.aimed(Target(slots, written, self.bucket)), self._attention.used(self.bucket):
            hidden, logits, _ = self._model.run(tokens, cache=self._cache, positions=lengths + depths, mask=mask)
        self.logits.copy_(logits)
        self.hidden.copy_(hidden)
        picks = logits.argmax(-1)  # the first, so the lowest id, of equal maxima
        num_accepted, path = accepted_path(tokens, parents, depths, sees, real, picks)
        self._put(hidden, picks, num_accepted, path)

    def read(self) -> Result:
        """Waits for the device: the only time in a step."""
        self._host_result.copy_(self._result)
        return Result(self._host_result.numpy(), self.bucket.nodes, self._model.hidden_size)

    def _put(self, hidden: Any, picks: Any, num_accepted: Any, path: Any) -> None:
        rows, nodes, _ = self.bucket
        result, size = self._result, self._model.hidden_size
        result[:, :nodes], result[:, nodes : nodes + 1] = picks, num_accepted
        result[:, nodes + 1 : 2 * nodes + 1] = path
        start, length = 2 * nodes + 1, min(nodes, PATH)
        states = hidden.gather(1, path[:, :length, None].expand(-1, -1, size)).float()
        ends = start + length * size
        result[:, start:ends] = states.reshape(rows, -1).view(torch.int32)
        if (reader := self._reader()) is not None:
            last = path.gather(1, num_accepted.clamp(min=1) - 1)
            end = hidden.gather(1, last[:, :, None].expand(-1, -1, size))[:, 0]
            result[:, ends:] = reader(end, picks.gather(1, last)[:, 0])


def _result_width(nodes: int, model: CausalModel, extra: int) -> int:
    return 2 * nodes + 1 + min(nodes, PATH) * model.hidden_size + extra
