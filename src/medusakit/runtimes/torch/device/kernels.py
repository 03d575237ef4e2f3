# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="untyped-decorator"
"""Attention of a few nodes over many cells, under a mask: Triton kernels that split a row's cells over the device.

torch's masked attention gives a head of a row to one block of the device, however many cells there are, and copies keys
and values where several heads share them. Here a block takes a part of the cells for all heads that share them
(flash-decoding, 2311.01282); parts are put together by their maxima and totals (online softmax, 1805.02867).

No `annotations` from the future here: Triton reads them.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl

from medusakit.runtimes.torch.device.buckets import ALIGNED

_LARGEST = {torch.float32: (16, 16)}  # queries and cells of a block, as memory on the chip allows; others: 64, 64
_SPLIT_CELLS = 256  # of a part, at least
_MOST_SPLITS = 32


def tree_attention(query: Any, keys: Any, values: Any, mask: Any, scale: float, blocks: int = 264) -> Any:
    """softmax(scale * Q K^T + mask) V, [R, n, H, d], summed in float32.

    query [R, H, n, d]; keys, values [R, G, cells, d], of which H / G heads share each; mask [R, 1, n, cells], finite,
    added; the last dimension of all lies together
    blocks  that keep the device busy: the cells are split until there are so many
    """
    rows, heads, nodes, size = query.shape
    groups, cells = keys.shape[1], keys.shape[2]
    shared = heads // groups * nodes  # queries over the same keys
    splits, part = split(rows * groups, cells, blocks)
    sums = query.new_empty((rows * groups, splits, shared, size), dtype=torch.float32)
    maxima = query.new_empty((rows * groups, splits, shared), dtype=torch.float32)
    totals, out = torch.empty_like(maxima), query.new_empty((rows, nodes, heads, size))
    most, block_cells = _LARGEST.get(query.dtype, (64, 64))
    block, padded = max(16, min(most, triton.next_power_of_2(shared))), max(16, triton.next_power_of_2(size))
    strides = (*query.stride()[:3], *keys.stride()[:3], *values.stride()[:3], mask.stride(0), mask.stride(2))
    precision = "ieee" if query.dtype == torch.float32 else "tf32"  # of float32 alone
    _part[(triton.cdiv(shared, block), rows * groups, splits)](
        query, keys, values, mask, sums, maxima, totals, *strides, scale, groups, nodes, shared, cells, part, size,
        splits, BLOCK=block, CELLS=block_cells, SIZE=padded, PRECISION=precision,
    )  # fmt: skip
    _together[(rows * groups * shared,)](
        sums, maxima, totals, out, groups, nodes, shared, splits, size,
        SPLITS=triton.next_power_of_2(splits), SIZE=padded,
    )  # fmt: skip
    return out


def split(independent: int, cells: int, blocks: int) -> tuple[int, int]:
    """(parts, cells of each). They do not depend on the number of nodes, so that plain passes sum as trees do.

    >>> split(8, 1024, 264), split(256, 1024, 264), split(8, 100, 264)
    ((4, 256), (2, 512), (1, 128))
    """
    most = min(_MOST_SPLITS, math.ceil(cells / _SPLIT_CELLS))
    splits = max(1, min(most, math.ceil(blocks / independent)))
    part = math.ceil(cells / splits / ALIGNED) * ALIGNED
    return math.ceil(cells / part), part


@triton.jit
def _part(
    query, keys, values, mask, sums, maxima, totals,
    query_row, query_head, query_node, key_row, key_head, key_cell, value_row, value_head, value_cell,
    mask_row, mask_node, scale, groups, nodes, shared, cells, part, size, splits,
    BLOCK: tl.constexpr, CELLS: tl.constexpr, SIZE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Queries of one block over one part of the cells: the sum without its divisor, the maximum, and the total."""
    pair, number = tl.program_id(1).to(tl.int64), tl.program_id(2)  # offsets may pass 32 bits
    row, group = pair // groups, pair % groups
    queries, dims = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, SIZE)
    is_query, is_dim = queries < shared, dims < size
    head, node = group * (shared // nodes) + queries // nodes, queries % nodes
    place = query + row * query_row + head[:, None] * query_head + node[:, None] * query_node + dims[None, :]
    q = tl.load(place, mask=is_query[:, None] & is_dim[None, :], other=0.0)
    keys += row * key_row + group * key_head
    values += row * value_row + group * value_head
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    total, gathered = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK, SIZE], tl.float32)
    end = tl.minimum((number + 1) * part, cells)
    for start in range(number * part, end, CELLS):
        cell = start + tl.arange(0, CELLS)
        is_cell = cell < end
        inside = is_cell[:, None] & is_dim[None, :]
        k = tl.load(keys + cell[:, None] * key_cell + dims[None, :], mask=inside, other=0.0)
        v = tl.load(values + cell[:, None] * value_cell + dims[None, :], mask=inside, other=0.0)
        added = tl.load(
            mask + row * mask_row + node[:, None] * mask_node + cell[None, :],
            mask=is_query[:, None] & is_cell[None, :],
            other=0.0,
        )
        score = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale + added.to(tl.float32)
        score = tl.where(is_cell[None, :], score, float("-inf"))
        higher = tl.maximum(best, tl.max(score, 1))
        weight, keep = tl.exp(score - higher[:, None]), tl.exp(best - higher)
        total = total * keep + tl.sum(weight, 1)
        gathered = gathered * keep[:, None] + tl.dot(weight.to(v.dtype), v, input_precision=PRECISION)
        best = higher
    at = (pair * splits + number) * shared + queries
    tl.store(maxima + at, best, mask=is_query)
    tl.store(totals + at, total, mask=is_query)
    tl.store(sums + at[:, None] * size + dims[None, :], gathered, mask=is_query[:, None] & is_dim[None, :])


@triton.jit
def _together(sums, maxima, totals, out, groups, nodes, shared, splits, size, SPLITS: tl.constexpr, SIZE: tl.constexpr):
    """The parts of one query in one."""
    pair, query = (tl.program_id(0) // shared).to(tl.int64), tl.program_id(0) % shared
    number, dims = tl.arange(0, SPLITS), tl.arange(0, SIZE)
    is_part, is_dim = number < splits, dims < size
    at = (pair * splits + number) * shared + query
    best = tl.load(maxima + at, mask=is_part, other=float("-inf"))
    weight = tl.exp(best - tl.max(best, 0))
    total = tl.sum(weight * tl.load(totals + at, mask=is_part, other=0.0), 0)
    parts = tl.load(sums + at[:, None] * size + dims[None, :], mask=is_part[:, None] & is_dim[None, :], other=0.0)
    found = tl.sum(weight[:, None] * parts, 0) / total
    row, group, heads = pair // groups, pair % groups, groups * (shared // nodes)
    head, node = group * (shared // nodes) + query // nodes, query % nodes
    tl.store(out + ((row * nodes + node) * heads + head) * size + dims, found.to(out.dtype.element_ty), mask=is_dim)
