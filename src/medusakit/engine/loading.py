"""From names to a working engine: model, tokenizer, runtime, heads that fit, and drafting that pays on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from medusakit.artifact.find import find_heads
from medusakit.artifact.io import Artifact
from medusakit.artifact.rope import aligned
from medusakit.config import nearest
from medusakit.drafters.base import Drafter
from medusakit.drafters.draft_model.drafter import DraftModelDrafter
from medusakit.drafters.draft_model.load import load_draft_model
from medusakit.drafters.registry import WITHOUT_HEADS
from medusakit.engine.controller import Controller
from medusakit.engine.deviations import record_trip
from medusakit.engine.remembered import CostWatch, remembered_cost
from medusakit.engine.speculation import MAX_LEAVES, PLAIN_DECODING, Speculation, Wishes, speculation
from medusakit.errors import UsageError
from medusakit.models.resolve import ResolvedModel, open_weights, resolve
from medusakit.models.spec import WeightSource
from medusakit.runtimes.base import Runtime
from medusakit.runtimes.onnx.runtime import load_onnx
from medusakit.runtimes.onnx.session import default_threads
from medusakit.text.tokenizer import Tokenizer, load_tokenizer
from medusakit.tree.cost import Budget, StepCost
from medusakit.tree.given import AUTO, TreeWish, checked
from medusakit.tree.topology import Topology

RUNTIMES = ("onnx", "torch")


@dataclass(frozen=True, slots=True)
class Loaded:
    """Everything a generation needs.

    drafter, topology, budget, max_nodes, controller  as in `Speculation`
    cost      T(n, context) here; None for plain decoding
    second    a model that drafts, which holds memory of its own
    wishes    what was asked of speculation
    threads   cores that a pass uses
    withheld  speculation is off, because in this format a tree pass may differ from plain decoding by more than a tie
    """

    resolved: ResolvedModel
    source: WeightSource = field(repr=False)
    runtime: Runtime
    tokenizer: Tokenizer
    artifact: Artifact | None
    drafter: Drafter | None
    topology: Topology
    budget: Budget | None
    cost: StepCost | None
    controller: Controller
    withheld: bool = False
    max_nodes: int | None = None
    second: DraftModelDrafter | None = None
    wishes: Wishes = field(default_factory=Wishes)
    threads: int = field(default_factory=default_threads)

    def cost_watch(self) -> CostWatch | None:
        """What keeps `cost` true while the model is served; None for plain decoding."""
        if self.cost is None:
            return None
        return CostWatch(self.runtime, self.source.fingerprint, self.threads, self.cost)


def load_parts(
    model: str,
    *,
    heads: str = "auto",
    weights: str = "auto",
    drafter: str | None = None,
    draft_model: str | None = None,
    tree: TreeWish = AUTO,
    budget: int | None = None,
    dynamic_tree: bool = True,
    max_leaves: int = MAX_LEAVES,
    breaker_rho: float | None = None,
    threads: int | None = None,
    max_context: int | None = None,
    max_rows: int = 1,
    offline: bool = False,
    align_position_embed: bool = False,
    runtime: str = "onnx",
    device_map: str | None = None,
) -> Loaded:
    """Open everything; see `LLM.load` for the arguments. Nothing stays open if it fails."""
    wishes = Wishes(drafter, checked(tree), budget, dynamic_tree, max_leaves, breaker_rho, draft_model)
    wishes.check(heads)
    resolved = resolve(model, offline=offline)
    source, start = _opened(resolved, runtime, device_map, weights, threads, max_rows, max_context)
    tokenizer = load_tokenizer(resolved)
    artifact = _heads(wishes, heads, source, resolved, tokenizer)
    if align_position_embed:
        source = _aligned(source, artifact, runtime)
    second = _second(draft_model, source, tokenizer, threads=threads, max_rows=max_rows, offline=offline)
    running = start(source)
    cost, withheld, found = None, False, PLAIN_DECODING
    asked = artifact is not None or heads != "none" or drafter is not None
    if asked and running.capabilities.chains:
        cost = remembered_cost(running, source.fingerprint, threads or default_threads())
        withheld = budget is None and running.capabilities.exact != "bitwise-ties"
        found = _speculation(wishes, artifact, source, running, cost, second, threads, withheld)
    return Loaded(
        resolved,
        source,
        running,
        tokenizer,
        artifact,
        found.drafter,
        found.topology,
        found.budget,
        cost,
        found.controller,
        withheld,
        found.max_nodes,
        second,
        wishes,
        threads or default_threads(),
    )


def _aligned(source: WeightSource, artifact: Artifact | None, runtime: str) -> WeightSource:
    if runtime != "onnx":
        raise UsageError("the rope of the heads can only be taken by the onnx runtime", hint="--runtime onnx")
    return aligned(source, artifact)


def _speculation(
    wishes: Wishes,
    artifact: Artifact | None,
    source: WeightSource,
    runtime: Runtime,
    cost: StepCost,
    second: DraftModelDrafter | None,
    threads: int | None,
    withheld: bool,
) -> Speculation:
    return speculation(
        wishes,
        artifact,
        source,
        runtime,
        cost,
        second=second,
        threads=threads,
        withheld=withheld,
        on_trip=record_trip,
    )


def other_drafting(parts: Loaded, heads: str, wishes: Wishes) -> tuple[Speculation, Artifact | None]:
    """Drafting with other heads for a model that is loaded; nothing of `parts` changes.

    heads    "auto", "none" (drafting from the text alone) or a folder
    Raises ArtifactError (damaged, another model's), UsageError (where the model was loaded without drafting).
    """
    if parts.cost is None:
        message = "the model was loaded without drafting, so heads cannot be put in"
        raise UsageError(message, hint="medusa serve -m MODEL")
    wishes.check(heads)
    artifact = _heads(wishes, heads, parts.source, parts.resolved, parts.tokenizer)
    found = speculation(
        wishes,
        artifact,
        parts.source,
        parts.runtime,
        parts.cost,
        second=parts.second,
        withheld=parts.withheld,
        on_trip=record_trip,
    )
    return found, artifact


def _heads(
    wishes: Wishes, heads: str, source: WeightSource, resolved: ResolvedModel, tokenizer: Tokenizer
) -> Artifact | None:
    """The artifact to draft with, None where the wished drafter needs none."""
    if wishes.drafter in WITHOUT_HEADS:
        return None
    family, vocabulary = wishes.family(), tokenizer.hash
    return find_heads(heads, source, model_path=resolved.path, drafter=family, tokenizer_hash=vocabulary)


def _opened(
    resolved: ResolvedModel,
    runtime: str,
    device_map: str | None,
    weights: str,
    threads: int | None,
    max_rows: int,
    max_context: int | None,
) -> tuple[WeightSource, Callable[[WeightSource], Runtime]]:
    """The weights, and what makes a runtime of them or of the same with another rope: heads that do not fit are told
    before minutes of building."""
    if runtime not in RUNTIMES:
        raise UsageError(f"runtime {runtime!r} is not known", hint=f"--runtime {nearest(runtime, RUNTIMES) or 'onnx'}")
    if runtime == "onnx":
        if device_map is not None:
            raise UsageError(f"device map {device_map!r} needs the torch runtime", hint="--runtime torch")
        return open_weights(resolved), lambda source: load_onnx(
            source, weights=weights, threads=threads, max_rows=max_rows, max_context=max_context
        )
    from medusakit.runtimes.torch.load import load_torch

    parts = load_torch(
        resolved, weights=weights, threads=threads, max_rows=max_rows, max_context=max_context, device_map=device_map
    )
    return parts.source, lambda source: parts.runtime


def _second(
    name: str | None, source: WeightSource, tokenizer: Tokenizer, *, threads: int | None, max_rows: int, offline: bool
) -> DraftModelDrafter | None:
    if name is None:
        return None
    return load_draft_model(name, source.spec, tokenizer, threads=threads, max_rows=max_rows, offline=offline)
