"""What a pass works out about its trees on the device: who sees what, and how far the model agrees. Static shapes.

R rows of n nodes, some of them padding. A tree comes as numbers: per node its token, parent, depth, and its ancestors
(itself included) as the bits of one 64-bit number. Nothing here reads a value back to the host or copies one from it
(as `where` does with a plain number), so that a CUDA graph can hold it; on the CPU it is the same code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def unpacked(bits: Any) -> Any:
    """[R, n, n] bool: node i sees node j. bits [R, n] int64, n <= 64."""
    nodes = torch.arange(bits.shape[1], device=bits.device)
    return ((bits[:, :, None] >> nodes) & 1).bool()


def masks_by_kind(sees: Any, depths: Any, lengths: Any, cells: int, windows: Mapping[str, int], dtype: Any) -> Any:
    """[R, 1, n, cells] added to attention scores; by kind of layer where there are several (see masks.py).

    sees [R, n, n], depths [R, n], lengths [R, 1]: positions that the rows hold; node i lies in cell length + i
    """
    masks = {kind: _mask(sees, depths, lengths, cells, window, dtype) for kind, window in windows.items()}
    return masks if len(masks) > 1 else next(iter(masks.values()))


def _mask(sees: Any, depths: Any, lengths: Any, cells: int, window: int, dtype: Any) -> Any:
    """A row of nothing is open nowhere: its scores are then all the same number, and what comes out is finite."""
    num_nodes = sees.shape[1]
    place = torch.arange(cells, device=sees.device)[None] - lengths  # [R, cells]: the node that a cell holds
    node = place.clamp(0, num_nodes - 1)
    holds_node = (place >= 0) & (place < num_nodes)
    seen = sees.gather(2, node[:, None].expand(-1, num_nodes, -1))
    opened = (place < 0)[:, None] | (holds_node[:, None] & seen)
    if window:
        position = torch.where(holds_node, depths.gather(1, node), place)  # relative to the root's
        opened = opened & (depths[:, :, None] - position[:, None] < window)
    mask = torch.zeros(opened.shape, dtype=dtype, device=sees.device)
    return mask.masked_fill_(~opened, torch.finfo(dtype).min)[:, None]


def accepted_path(tokens: Any, parents: Any, depths: Any, sees: Any, real: Any, picks: Any) -> tuple[Any, Any]:
    """The walk of the rule `greedy`: (number of accepted nodes, root included [R, 1]; those nodes, in order [R, n]).

    tokens, parents, depths [R, n]; real [R, n]: not padding; picks [R, n]: the model's best token after each node.
    A node is accepted if it carries its parent's pick, and so do its ancestors. Of siblings with one token the first
    counts, as in verify/greedy.py.
    """
    num_nodes = tokens.shape[1]
    if num_nodes == 1:  # plain decoding: the root is the path
        return real.long(), torch.zeros_like(tokens)
    nodes = torch.arange(num_nodes, device=tokens.device)
    matches = (tokens == picks.gather(1, parents.clamp(min=0))) | (nodes == 0)
    twins = (tokens[:, :, None] == tokens[:, None]) & (parents[:, :, None] == parents[:, None])
    matches = matches & ~(twins & (nodes[None, :] < nodes[:, None])).any(-1)
    accepted = (matches[:, None] | ~sees).all(-1) & real
    path = torch.zeros(len(tokens), num_nodes + 1, dtype=torch.int64, device=tokens.device)
    place = depths.masked_fill(~accepted, num_nodes)  # the last place takes what is not accepted
    path.scatter_(1, place, nodes.expand(len(tokens), -1))
    return accepted.sum(1, keepdim=True), path[:, :num_nodes]
