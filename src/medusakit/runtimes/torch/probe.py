"""What a model can do, found out on the model itself at load: trees, chains, or one token at a time.

A small tree with two branches at one position must agree with plain runs of its paths by the model's own means (no
cache, no mask of ours): so the mask and the positions are honoured. A path whose nodes do not lie together must go on
as if it had been run plainly: so the KV can be compacted. Layers with a window are compared beyond it with the masks
that the model makes itself. Chains and single tokens are tried with positions of ours and with the model's own, which
some count from another number than zero. A model that only goes on is compared with its own `generate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

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
_STEPS = 4  # tokens of a `generate` to compare with
ROUGH = 0.15
TOLERANCE = {"bitwise-ties": 1e-3, "numerical-ties": ROUGH}  # of the scores' standard deviation, by how exact it is
_LONGEST_WINDOW = 8192  # positions that the probe fills at most


_Plain = Callable[[Sequence[int]], FloatArray]  # a text's ids to its [n, V] scores


class _Fault(Exception):
    """What the probe found, as its text."""


def fitting_runtime(
    model: CausalModel, spec: ModelSpec, capabilities: Capabilities, *, prepared: bool = False
) -> Runtime:
    """The runtime that does most of what this model can do; `capabilities.limit` says why it is not the first.

    prepared  passes of fixed shapes, as graphs where the device has them; `capabilities.eager` says why not, if so
    """
    plain = partial(_plain, model, positions=False)
    runtime = _with_trees(model, spec, capabilities, plain, prepared)
    if isinstance(runtime, str) and _generate_counts_from_zero(model):
        plain = partial(_plain, model, positions=True)
        runtime = _with_trees(model, spec, capabilities, plain, prepared)
    if not isinstance(runtime, str):
        return runtime
    limit = f"trees do not work with this model: {runtime}"
    chains = TorchRuntime(model, spec, replace(capabilities, trees=False, limit=limit), None)
    reason = _fault_either_way(model, lambda: _check_shape(chains, plain, _CHAIN, [0, 1]))
    if not reason:
        return chains
    limit = f"{limit}; nor do chains: {reason}"
    single = SequentialRuntime(model, spec, replace(capabilities, trees=False, chains=False, limit=limit))
    if reason := _fault_either_way(model, lambda: _check_steps(single, model)):
        raise UnsupportedModelError(
            f"{spec.name} cannot be decoded: {limit}; nor does plain decoding work: {reason}",
            hint="medusa models list   names some that run; transformers' own generate may run this one",
        )
    return single


def _with_trees(
    model: CausalModel, spec: ModelSpec, capabilities: Capabilities, plain: _Plain, prepared: bool
) -> Runtime | str:
    """A runtime that runs trees, or why none does."""
    windows = layer_windows(model.config)
    if windows is None:
        kinds = sorted(set(model.config.layer_types) - {"full_attention", "sliding_attention"})
        return f"it has layers of the kind {', '.join(kinds)}"
    if prepared:
        device = DeviceRuntime(model, spec, capabilities, windows)
        reason = _tree_fault(device, windows, plain)
        if not reason:
            return device
        device.free()
        capabilities = replace(capabilities, eager=f"passes of fixed shapes do not work with this model: {reason}")
    runtime = TorchRuntime(model, spec, capabilities, windows)
    return _tree_fault(runtime, windows, plain) or runtime


def _generate_counts_from_zero(model: CausalModel) -> bool:
    """Whether `generate`, which is what counts, gives positions from zero to a model that would count otherwise."""
    prompt = list(range(_PREFIX))

    def check() -> None:
        told, bare = (_plain(model, prompt, positions=given) for given in (True, False))
        _, scores = _generated(model, prompt)
        if _agree(bare, told) or not _agree(told[-1], scores[0]):
            raise _Fault("it does not")

    return model.takes_positions and not _fault(check)


def _fault_either_way(model: CausalModel, check: Callable[[], object]) -> str:
    """Why the check fails with positions of ours, "" if it does not, or not with the model's own."""
    reasons = []
    for given in (True, False) if model.takes_positions else (True,):
        model.gives_positions = given
        reasons.append(_fault(check))
        if not reasons[-1]:
            return ""
    return reasons[0]


def _tree_fault(runtime: TorchRuntime, windows: Mapping[str, int], plain: _Plain) -> str:
    reason = _fault(lambda: _check_shape(runtime, plain, _SHAPE, [0, 2, 4, 6]))
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


def _check_shape(runtime: TorchRuntime, plain: _Plain, shape: Topology, kept: Sequence[int]) -> None:
    """Every leaf's path against a plain run; then a commit of `kept`, the cut after it, and one more token."""
    random = np.random.default_rng(0)
    prefix = random.integers(0, runtime.model.vocab_size, _PREFIX).tolist()
    tree = Tree(shape, random.integers(0, runtime.model.vocab_size, shape.num_nodes))
    row = runtime.add_row()
    try:
        runtime.prefill(row, prefix)
        scores = runtime.forward([(row, tree)])[0]
        for leaf in (node for node, children in enumerate(shape.children) if not children):
            path = shape.path(leaf)
            expected = plain([*prefix, *tree.tokens[path].tolist()])[-len(path) :]
            _compare(runtime, np.stack([scores.logits(node) for node in path]), expected, "a tree's nodes")
        runtime.commit(row, kept)
        ids = [*prefix, *tree.tokens[list(kept)].tolist(), 1]
        after = runtime.forward([(row, Tree.plain(1))])[0].logits(0)
        _compare(runtime, after, plain(ids)[-1], "what follows accepted nodes")
        runtime.truncate(row, _PREFIX)
        after = runtime.prefill(row, [2, 1]).logits(0)
        _compare(runtime, after, plain([*prefix, 2, 1])[-1], "what follows a cut")
    finally:
        runtime.drop_row(row)


def _check_steps(runtime: SequentialRuntime, model: CausalModel) -> None:
    """A prompt and some tokens, one at a time, against the model's own `generate`."""
    prompt = np.random.default_rng(0).integers(0, model.vocab_size, _PREFIX).tolist()
    tokens, expected = _generated(model, prompt)
    row = runtime.add_row()
    try:
        found = runtime.prefill(row, prompt)
        for token, scores in zip(tokens, expected, strict=True):
            _compare(runtime, found.logits(0), scores, "tokens one at a time")
            found = runtime.forward([(row, Tree.plain(token))])[0]
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
        _compare(runtime, ours, own, "a token beyond the window")
    finally:
        runtime.drop_row(row)


def _plain(model: CausalModel, ids: Sequence[int], *, positions: bool) -> FloatArray:
    """[n, V] scores of a text by the model's own means, with positions from zero or without any."""
    given = {"position_ids": torch.arange(len(ids), device=model.device)[None]} if positions else {}
    text = torch.tensor([list(ids)], device=model.device)
    with torch.inference_mode():
        output = model.hf(input_ids=text, use_cache=False, return_dict=True, **given)
    return as_numpy(output.logits[0])


def _generated(model: CausalModel, prompt: Sequence[int]) -> tuple[list[int], list[FloatArray]]:
    """Some tokens after a prompt by the model's own greedy `generate`, and the [V] scores that each was taken from."""
    ids = torch.tensor([list(prompt)], device=model.device)
    output = model.hf.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=_STEPS,
        do_sample=False,
        num_beams=1,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_logits=True,
    )
    return output.sequences[0, len(prompt) :].tolist(), [as_numpy(scores[0]) for scores in output.logits]


def _compare(runtime: Runtime, found: FloatArray, expected: FloatArray, what: str) -> None:
    allowed = TOLERANCE[runtime.capabilities.exact] * max(float(expected.std()), 1e-6)
    worst = float(np.abs(found - expected).max())
    if not worst <= allowed:
        raise _Fault(f"{what} differ by {worst:.2g} from a plain run ({allowed:.2g} is rounding)")


def _agree(found: FloatArray, expected: FloatArray) -> bool:
    """Up to rounding of any format."""
    return found.shape == expected.shape and float(np.abs(found - expected).max()) <= ROUGH * float(expected.std())
