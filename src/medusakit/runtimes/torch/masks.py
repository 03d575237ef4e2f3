"""The tree mask, as transformers takes it: [rows, 1, nodes, cells] added to attention scores, per kind of layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from medusakit.runtimes.rows import Segment
from medusakit.runtimes.torch.model import setting

FULL, SLIDING = "full_attention", "sliding_attention"


def layer_windows(config: Any) -> dict[str, int] | None:
    """Per kind of attention layer, the positions that it sees (0: all); None where some layer is of another kind.

    config: of the language model, from transformers.
    """
    window = int(setting(config, "sliding_window") or 0)
    kinds = setting(config, "layer_types")
    if kinds is None:
        return {SLIDING: window} if window else {FULL: 0}
    known = {FULL: 0, SLIDING: window}
    return {kind: known[kind] for kind in dict.fromkeys(kinds)} if set(kinds) <= set(known) else None


def tree_masks(segments: Sequence[Segment], windows: Mapping[str, int], dtype: Any, device: Any) -> Any:
    """One tensor where all layers are of one kind, else a tensor by kind, which is what such models take."""
    masks = {kind: _mask(segments, window, dtype, device) for kind, window in windows.items()}
    return masks if len(masks) > 1 else next(iter(masks.values()))


def _mask(segments: Sequence[Segment], window: int, dtype: Any, device: Any) -> Any:
    """A node sees the row's positions and its own ancestors, as far as the window reaches. A padded node sees itself:
    a softmax over nothing is NaN."""
    width = max(segment.num_nodes for segment in segments)
    end = max(segment.length for segment in segments) + width
    hidden = np.ones((len(segments), width, end), np.bool_)
    for row, segment in enumerate(segments):
        length, count = segment.length, segment.num_nodes
        hidden[row, np.arange(width), length + np.arange(width)] = False
        hidden[row, :count, :length] = False
        hidden[row, :count, length : length + count] = ~segment.ancestors
        if window:
            positions = np.concatenate([np.arange(length), length + segment.depths])
            distance = positions[length:, None] - positions
            hidden[row, :count, : length + count] |= distance >= window
    mask = torch.zeros(hidden.shape, dtype=dtype)
    return mask.masked_fill_(torch.from_numpy(hidden), torch.finfo(dtype).min)[:, None].to(device)
