"""What a model can do, found out on the model itself at load: trees, chains, or one token at a time.

A small tree with two branches at one position must agree with plain runs of its paths by the model's own means (no
cache, no mask of ours): so the mask and the positions are honoured. A path whose nodes do not lie together must go on
as if it had been run plainly: so the KV can be compacted. Layers with a window are compared beyond it with the masks
that the model makes itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from medusakit.errors import MedusaError, UnsupportedModelError
from medusakit.models.spec import ModelSpec
from medusakit.runtimes.base import Capabilities, Runtime
from medusakit.runtimes.torch.device.runtime import DeviceRuntime
from medusakit.runtimes.torch.masks import layer_windows
from medusakit.runtimes.torch.model import CausalModel
from medusakit.runtimes.torch.runtime import TorchRuntime
from medusakit.runtimes.torch.scores import as_numpy
from medusakit.runtimes.torch.sequential import SequentialRuntime
from medusakit.tree.topology import FloatArray, Topology, Tree

_SHAPE = Topology.from_rank_paths([(0,), (1,), (0, 0), (1, 0), (1, 1), (1, 0, 0)])
_CHAIN = Topology.chain(3)
_PREFIX = 9
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}  # of the scores' standard deviation
ROUGH = 0.15  # the same, in formats that round more
_LONGEST_WINDOW = 8192  # positions that the probe fills at most


class _Fault(Exception):
    """What the probe found, as its text."""


def fitting_runtime(
    model: CausalModel, spec: ModelSpec, capabilities: Capabilities, *, prepared: bool = False
) -> Runtime:
    """The runtime that does most of what this model can do; `capabilities.limit` says why it is not the first.

    prepared  passes of fixed shapes, as graphs where the device has them; `capabilities.eager` says why not, if so
    """
    windows = layer_windows(model.config)
    if windows is None:
        kinds = sorted(set(model.config.layer_types) - {"full_attention", "sliding_attention"})
        reason = f"it has layers of the kind {', '.join(kinds)}"
    else:
        if prepared:
            device = DeviceRuntime(model, spec, capabilities, windows)
            reason = _tree_fault(device, windows)
            if not reason:
                return device
            device.free()
            capabilities = replace(capabilities, eager=f"passes of fixed shapes do not work with this model: {reason}")
        runtime = TorchRuntime(model, spec, capabilities, windows)
        reason = _tree_fault(runtime, windows)
        if not reason:
            return runtime
    limit = f"trees do not work with this model: {reason}"
    chains = TorchRuntime(model, spec, replace(capabilities, trees=False, limit=limit), None)
    reason = _fault(lambda: _check_shape(chains, model, _CHAIN, [0, 1]))
    if not reason:
        return chains
    limit = f"{limit}; nor do chains: {reason}"
    single = SequentialRuntime(model, spec, replace(capabilities, trees=False, chains=False, limit=limit))
    if reason := _fault(lambda: _check_steps(single, model)):
        raise UnsupportedModelError(f"{spec.name} cannot be decoded: {limit}; nor does plain decoding work: {reason}")
    return single


def _tree_fault(runtime: TorchRuntime, windows: Mapping[str, int]) -> str:
    reason = _fault(lambda: _check_shape(runtime, runtime.model, _SHAPE, [0, 2, 4, 6]))
    return reason or _fault(lambda: _check_windows(runtime, windows))


def _fault(check: Callable[[], object]) -> str:
    """Why the check failed, "" if it did not. A model may answer a mask or a cache that it does not know with any
    error, so all of them count."""
    try:
        check()
    except _Fault as fault:
        return str(fault)
    except MedusaError as error:
        return error.message.splitlines()[0]
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
    return ""


def _check_shape(runtime: TorchRuntime, model: CausalModel, shape: Topology, kept: Sequence[int]) -> None:
    """Every leaf's path against a plain run; then a commit of `kept`, the cut after it, and one more token."""
    random = np.random.default_rng(0)
    prefix = random.integers(0, model.vocab_size, _PREFIX).tolist()
    tree = Tree(shape, random.integers(0, model.vocab_size, shape.num_nodes))
    row = runtime.add_row()
    try:
        runtime.prefill(row, prefix)
        scores = runtime.forward([(row, tree)])[0]
        for leaf in (node for node, children in enumerate(shape.children) if not children):
            path = shape.path(leaf)
            plain = _plain(model, [*prefix, *tree.tokens[path].tolist()])[-len(path) :]
            _compare(model, np.stack([scores.logits(node) for node in path]), plain, "a tree's nodes")
        runtime.commit(row, kept)
        ids = [*prefix, *tree.tokens[list(kept)].tolist(), 1]
        after = runtime.forward([(row, Tree.plain(1))])[0].logits(0)
        _compare(model, after, _plain(model, ids)[-1], "what follows accepted nodes")
        runtime.truncate(row, _PREFIX)
        after = runtime.prefill(row, [2, 1]).logits(0)
        _compare(model, after, _plain(model, [*prefix, 2, 1])[-1], "what follows a cut")
    finally:
        runtime.drop_row(row)


def _check_steps(runtime: SequentialRuntime, model: CausalModel) -> None:
    """A prompt and three tokens, one at a time, against a plain run."""
    ids = np.random.default_rng(0).integers(0, model.vocab_size, _PREFIX + 3).tolist()
    plain = _plain(model, ids)
    row = runtime.add_row()
    try:
        runtime.prefill(row, ids[:_PREFIX])
        for place in range(_PREFIX, len(ids)):
            found = runtime.forward([(row, Tree.plain(ids[place]))])[0].logits(0)
            _compare(model, found, plain[place], "tokens one at a time")
            runtime.commit(row, [0])
    finally:
        runtime.drop_row(row)


def _check_windows(runtime: TorchRuntime, windows: Mapping[str, int]) -> None:
    """Beyond the longest window that can be filled, our masks against the model's own."""
    reach = max((window for window in windows.values() if window <= _LONGEST_WINDOW), default=0)
    if not reach or reach + 3 > runtime.capabilities.max_context:
        return
    row = runtime.add_row()
    try:
        runtime.prefill(row, np.random.default_rng(1).integers(0, runtime.spec.vocab_size, 8).tolist())
        memory = runtime.save(row)
        repeated = [np.tile(part, (1, reach // 8 + 1, 1))[:, : reach + 2] for part in memory.arrays]
        runtime.truncate(row, 0)
        runtime.restore(row, replace(memory, length=reach + 2, arrays=tuple(repeated)), reach + 2)
        own = runtime.own_scores(row, 1)
        ours = runtime.forward([(row, Tree.plain(1))])[0].logits(0)
        _compare(runtime.model, ours, own, "a token beyond the window")
    finally:
        runtime.drop_row(row)


def _plain(model: CausalModel, ids: Sequence[int]) -> FloatArray:
    """[n, V] scores of a text by the model's own means."""
    with torch.inference_mode():
        output = model.hf(input_ids=torch.tensor([list(ids)], device=model.device), use_cache=False, return_dict=True)
    return as_numpy(output.logits[0])


def _compare(model: CausalModel, found: FloatArray, expected: FloatArray, what: str) -> None:
    allowed = TOLERANCE.get(model.dtype, ROUGH) * max(float(expected.std()), 1e-6)
    worst = float(np.abs(found - expected).max())
    if not worst <= allowed:
        raise _Fault(f"{what} differ by {worst:.2g} from a plain run ({allowed:.2g} is rounding)")
