"""The plugin for a service that already runs a transformers model. Two lines:

    handle = medusa_hook(model, "path/to/heads")
    output = model.generate(**inputs, max_new_tokens=256)        # as before, faster
    handle.unhook()                                              # as if nothing had been

`generate` keeps its signature and its meaning: logits processors, sampling parameters, stopping criteria and streamers
are transformers' own, called for every token in the order in which plain decoding calls them. Sampling takes one draw a
token from the same generator, so that a seed gives the answer that it gave before, up to ties of rounding. What tree
decoding does not do (beams, batches, scores of every step, an output with its cache) runs as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from medusakit.artifact.io import Artifact, check_fits, load_artifact
from medusakit.drafters.base import DraftState, show_step
from medusakit.engine.plan import Plan
from medusakit.engine.prefixes import PrefixCache
from medusakit.engine.speculation import speculation
from medusakit.engine.wishes import Wishes
from medusakit.errors import UnsupportedModelError, UsageError
from medusakit.integrations.handle import Handle
from medusakit.integrations.rule import ProcessorRule
from medusakit.integrations.state import Kind
from medusakit.runtimes.base import Scores
from medusakit.runtimes.torch.load import TorchParts, torch_parts
from medusakit.tree.cost import StepCost
from medusakit.tree.topology import Draft, Tree
from medusakit.verify.walk import walk

BUDGET = 12  # nodes of a tree, root included, where nothing else is said
CACHE_BYTES = 512 << 20
_OTHER_MODES = ("assistant_model", "custom_generate", "prompt_lookup_num_tokens", "penalty_alpha", "dola_layers",
                "synced_gpus")  # fmt: skip
_PLAIN_KWARGS = ("logits_to_keep",)


def medusa_hook(
    model: Any,
    artifact: str | Path | Artifact | None = None,
    *,
    enable_tree_cache: bool = False,
    budget: int = BUDGET,
    pack: bool = True,
) -> Handle:
    """Let `model.generate` draft and verify trees.

    artifact  a folder of heads that were trained for this model; None drafts from prompt and answer alone
    enable_tree_cache  keep the KV of earlier calls, for prompts that begin the same way
    budget    nodes of a tree at most, root included
    pack      pack float32 linear layers on the CPU, in place of their weights as they lie (`runtimes.torch.pack`); the
              model's `state_dict` is what it was, and training or moving the model takes packing back
    Raises UsageError for a model that is hooked or none of transformers', and for a budget that is no number of nodes;
    ArtifactError for heads that are damaged or another model's.
    """
    _check(model, budget)
    parts = _parts(model)
    try:
        plan = _plan(artifact, parts, budget)
    except BaseException:
        parts.runtime.close()
        raise
    prefixes = PrefixCache(CACHE_BYTES) if enable_tree_cache else None
    handle = Handle(model, parts.runtime, plan, prefixes, model.generate, Kind.of(model), packs=pack)
    handle.refresh()

    def generate(*args: Any, **kwargs: Any) -> Any:
        mixed = torch.is_autocast_enabled(handle.kind.device.type)  # the kept buffers are of one dtype
        if mixed or not _may_be_ours(model, args, kwargs) or not handle.fits():
            return handle.own_generate(*args, **kwargs)
        decoding = _Decoding(handle, kwargs.get("streamer"))
        return handle.own_generate(*args, custom_generate=decoding, **kwargs)

    model.generate, model.medusa_handle = generate, handle
    return handle


def _check(model: Any, budget: int) -> None:
    if not isinstance(model, nn.Module) or not hasattr(model, "generate"):
        message = f"{type(model).__name__} is no model of transformers that generates text"
        raise UsageError(message, hint="AutoModelForCausalLM.from_pretrained(...)")
    if hasattr(model, "medusa_handle"):
        raise UsageError("this model is hooked already", hint="handle.unhook()")
    if not isinstance(budget, int) or isinstance(budget, bool) or budget < 1:
        raise UsageError(f"budget is {budget!r}; expected a number of nodes, 1 or more", hint=f"budget={BUDGET}")


def _parts(model: Any) -> TorchParts:
    folder = Path(str(getattr(model, "name_or_path", "")))
    try:
        return torch_parts(model, max_rows=1, folder=folder if (folder / "config.json").is_file() else None)
    except UnsupportedModelError as error:
        if not model.training:
            raise
        message = "the model is in training mode, where dropout makes every pass another"
        raise UsageError(message, hint="model.eval()") from error


def _plan(artifact: str | Path | Artifact | None, parts: TorchParts, budget: int) -> Plan:
    heads = load_artifact(artifact) if isinstance(artifact, (str, Path)) else artifact
    if heads is not None:
        check_fits(heads, parts.source)
    flat = StepCost({256: {1: 1.0, 64: 1.0}})  # not measured here: the budget says how many nodes
    return speculation(Wishes(budget=budget), heads, parts.source, parts.runtime, flat).controller.plan(())


def medusa_tree_decode(model: Any, input_ids: Any, **generate_kwargs: Any) -> Any:
    """`model.generate(input_ids, ...)` of a hooked model, by name. Raises UsageError for one that is not hooked."""
    if not hasattr(model, "medusa_handle"):
        raise UsageError("this model is not hooked", hint="medusa_hook(model, 'path/to/heads')")
    return model.generate(input_ids, **generate_kwargs)


class _Decoding:
    """What `generate` calls with everything prepared: transformers' `custom_generate`."""

    def __init__(self, handle: Handle, streamer: Any) -> None:
        self._handle, self._streamer = handle, streamer

    def __call__(
        self,
        model: Any,
        input_ids: Any,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        **model_kwargs: Any,
    ) -> Any:
        """The ids, prompt and answer, [1, n]; what is not for trees goes to transformers' own loop."""
        if not _is_ours(self._handle, input_ids, stopping_criteria, generation_config, model_kwargs):
            return type(model)._sample(
                model,
                input_ids,
                logits_processor=logits_processor,
                stopping_criteria=stopping_criteria,
                generation_config=generation_config,
                streamer=self._streamer,
                **model_kwargs,
            )
        rule = ProcessorRule(input_ids, logits_processor, stopping_criteria, sample=generation_config.do_sample)
        with self._handle.lock:
            self._handle.refresh()
            _decode(self._handle, rule, self._streamer)
        if self._streamer is not None:
            self._streamer.end()
        return rule.ids


def _may_be_ours(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the call is greedy or samples one sequence, as far as its arguments and configuration tell."""
    config = kwargs.get("generation_config") or (args[1] if len(args) > 1 else None) or model.generation_config
    asked = [kwargs.get(name, getattr(config, name, None)) for name in _OTHER_MODES]
    beams = kwargs.get("num_beams", getattr(config, "num_beams", None)) or 1
    return beams == 1 and not any(asked)


def _is_ours(handle: Handle, input_ids: Any, stopping_criteria: Any, config: Any, model_kwargs: dict[str, Any]) -> bool:
    """One whole prompt of ids, without a cache of the caller's, that fits with its answer; nothing asked but ids."""
    capabilities, given = handle.runtime.capabilities, dict(model_kwargs)
    mask, used = given.pop("attention_mask", None), given.pop("use_cache", True)
    positions = given.pop("position_ids", None)
    caches = [given.pop(name, None) for name in ("cache", "past_key_values", "cache_params")]
    others = [name for name, value in given.items() if name not in _PLAIN_KWARGS and value is not None]
    length = getattr(stopping_criteria, "max_length", None)
    return (
        capabilities.chains
        and tuple(input_ids.shape[:1]) == (1,)
        and input_ids.shape[1] > 0
        and not input_ids.is_floating_point()
        and (mask is None or bool(mask.all()))
        and _counts_from_zero(positions, input_ids.shape[1])
        and used is not False
        and not any(cache is not None and cache.get_seq_length() for cache in caches)
        and not others
        and length is not None
        and length <= capabilities.max_context
        and not config.return_dict_in_generate
    )


def _counts_from_zero(positions: Any, length: int) -> bool:
    """Whether these are the positions of so many ids, as `generate` makes them of a mask without padding."""
    if positions is None:
        return True
    return positions.shape[-1] == length and bool((positions == torch.arange(length, device=positions.device)).all())


def _decode(handle: Handle, rule: ProcessorRule, streamer: Any) -> None:
    """Tokens into `rule.ids` until the stopping criteria say so."""
    runtime, row = handle.runtime, handle.runtime.add_row()
    try:
        prompt = rule.listed()
        scores = _prefill(handle, row, prompt)
        hidden = scores.hidden(0).copy()
        token = rule.decide(scores, 0, (), prompt).pick
        while True:
            if streamer is not None:
                for new in rule.fresh():
                    streamer.put(new)
            if rule.stopped:
                break
            ids = rule.listed()
            tree = _tree(handle, DraftState(row, token, hidden, ids))
            scores = runtime.forward([(row, tree)])[0]
            path = walk(tree, scores, rule, ids)
            kept, token = path.nodes, path.bonus_id
            _keep(handle, row, tree, kept, scores)
            hidden = scores.hidden(kept[-1]).copy()
            handle.num_steps, handle.num_tokens = handle.num_steps + 1, handle.num_tokens + len(path.token_ids)
        if handle.prefixes is not None:
            held = rule.listed()[: runtime.length(row)]
            handle.prefixes.add("", held, lambda: runtime.save(row))
    finally:
        handle.plan.drafter.forget(row)
        runtime.drop_row(row)


def _prefill(handle: Handle, row: int, ids: Sequence[int]) -> Scores:
    saved = handle.prefixes.find("", ids) if handle.prefixes is not None else None
    if saved is None:
        return handle.runtime.prefill(row, ids)
    handle.runtime.restore(row, saved.memory, saved.length)
    return handle.runtime.prefill(row, ids[saved.length :])


def _tree(handle: Handle, state: DraftState) -> Tree:
    """A tree within the budget and the context that is left."""
    plan, context = handle.plan, len(state.ids)
    room = min(plan.budget, handle.runtime.capabilities.max_context - context + 1)
    drafts = plan.drafter.propose([state], plan.policy.shape) if room > 1 else [Draft.plain(state.root_id)]
    return plan.policy.select(drafts, [max(1, room)], context)[0]


def _keep(handle: Handle, row: int, tree: Tree, kept: Sequence[int], scores: Scores) -> None:
    handle.runtime.commit(row, kept)
    ids = [int(tree.tokens[node]) for node in kept]
    handle.plan.drafter.observe(row, ids, np.stack([scores.hidden(node) for node in kept]))
    show_step(handle.plan.drafter, row, tree, kept, scores)
