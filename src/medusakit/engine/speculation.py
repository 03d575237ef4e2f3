"""How a loaded model drafts: which sources, which trees, how many rows, and what watches that it pays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from medusakit.artifact.io import Artifact
from medusakit.drafters.base import Drafter
from medusakit.drafters.draft_model.drafter import BEAM as DRAFT_MODEL_BEAM
from medusakit.drafters.draft_model.drafter import DraftModelDrafter
from medusakit.drafters.hybrid.drafter import NAME as HYBRID
from medusakit.drafters.hybrid.drafter import HybridDrafter, Source
from medusakit.drafters.registry import (
    HEADLESS,
    headless_drafter,
    load_drafter,
)
from medusakit.engine.controller import Controller, FixedController, GuardedController, PlainController
from medusakit.engine.guard import Guard, Round
from medusakit.engine.measure import draft_seconds
from medusakit.engine.plan import make_plan
from medusakit.engine.wishes import MAX_WISHED, Wishes
from medusakit.errors import UsageError
from medusakit.models.spec import WeightSource
from medusakit.runtimes.base import Capabilities, Runtime
from medusakit.tree.cost import Budget, Rate, StepCost, best_of, budgets
from medusakit.tree.given import given_topology
from medusakit.tree.policy import DynamicPolicy, StaticPolicy
from medusakit.tree.topology import PLAIN, Beam, Topology

OTHER_S = 3e-4  # walk, commit and emit of one row, measured on the embedded model (docs/performance.md)
GROW_S = 2e-4  # growing and merging the drafts of one row
MAX_BUDGET = 64  # that is chosen here
BRANCHING = 8
# Nodes of a level that the heads keep, for trees of up to so many nodes: what pays on a CPU is under a dozen, and every
# node costs time. Deeper levels keep as many as the last.
HEADS_WIDTHS = {12: (5, 4, 3, 2, 2), 24: (8, 6, 5, 4, 3), MAX_WISHED: (12, 10, 8, 6, 5)}


@dataclass(frozen=True, slots=True)
class Speculation:
    """How a model drafts.

    topology   the tree of every step; the root alone where decoding is plain or trees are grown anew at every step
    max_nodes  rows of a pass at most, where trees are grown anew at every step
    budget     what is expected of a step with a calibrated static tree
    """

    drafter: Drafter | None
    topology: Topology
    controller: Controller
    max_nodes: int | None = None
    budget: Budget | None = None


PLAIN_DECODING = Speculation(None, PLAIN, PlainController())


def speculation(
    wishes: Wishes,
    artifact: Artifact | None,
    source: WeightSource,
    runtime: Runtime,
    cost: StepCost,
    *,
    second: DraftModelDrafter | None = None,
    threads: int | None = None,
    withheld: bool = False,
    on_trip: Callable[[Round], None] | None = None,
) -> Speculation:
    """Drafter, trees and controller.

    second    a model that drafts in the heads' place
    withheld  no trees unless a budget is given: in this format they may differ from plain decoding by more than a tie
    """
    drafter = build_drafter(wishes, artifact, source, second=second, threads=threads, runtime=runtime)
    found = with_trees(wishes, drafter, artifact, runtime, cost)
    if withheld:
        return Speculation(drafter, PLAIN, FixedController(make_plan(drafter, StaticPolicy(PLAIN), 1)), 1)
    return found if wishes.budget and wishes.breaker_rho is None else _guarded(found, cost, wishes, on_trip)


def build_drafter(
    wishes: Wishes,
    artifact: Artifact | None,
    source: WeightSource,
    *,
    second: DraftModelDrafter | None = None,
    threads: int | None = None,
    runtime: Runtime | None = None,
) -> HybridDrafter:
    """What is wished, of the heads or the second model that there are; on the runtime's device where they can."""
    rate = Rate()
    if second is not None:
        return HybridDrafter([Source(second, DRAFT_MODEL_BEAM, costly=True)], rate=rate)
    heads = None
    if artifact is not None:
        drafter = load_drafter(artifact, source, threads=threads, runtime=runtime)
        heads = Source(drafter, heads_beam(drafter.max_depth, wishes.budget), artifact.exponents, costly=True)
    if wishes.drafter in HEADLESS:
        names: tuple[str, ...] = (str(wishes.drafter),)
    elif heads is None:
        names = HEADLESS
    else:
        names = () if wishes.family else ("suffix",)
    free = [Source(*headless_drafter(name, vocab_size=source.spec.vocab_size)) for name in names]
    return HybridDrafter([*free, *([heads] if heads else [])], rate=rate)


def with_trees(
    wishes: Wishes, drafter: HybridDrafter, artifact: Artifact | None, runtime: Runtime, cost: StepCost
) -> Speculation:
    """A drafter with the trees that are wished, and nothing that watches it. Raises UsageError for a tree by shape
    where the runtime runs chains only."""
    wishes = possible(wishes, runtime.capabilities)
    if wishes.grown:
        return _dynamic(wishes, drafter, cost)
    return _static(wishes, drafter, artifact, runtime, cost)


def possible(wishes: Wishes, capabilities: Capabilities) -> Wishes:
    """Chains where the runtime runs no trees. Raises UsageError for a tree that was asked for by shape."""
    if capabilities.trees:
        return wishes
    if not wishes.grown:
        raise UsageError(f"this model takes no tree of a given shape: {capabilities.limit}", hint="--tree auto")
    return replace(wishes, max_leaves=1)


def heads_beam(depth: int, budget: int | None = None) -> Beam:
    """What heads that guess `depth` tokens ahead draft for trees of at most `budget` nodes (None: of what pays)."""
    most = min(budget or 0, MAX_WISHED)
    widths = next(widths for nodes, widths in HEADS_WIDTHS.items() if most <= nodes)
    return Beam((widths + widths[-1:] * depth)[:depth], BRANCHING)


def _dynamic(wishes: Wishes, drafter: HybridDrafter, cost: StepCost) -> Speculation:
    """Trees grown anew at every step: from nothing up to what pays by measured cost, or to the given budget."""
    policy = DynamicPolicy(
        drafter.beam,
        max_leaves=wishes.max_leaves if wishes.max_leaves < (wishes.budget or MAX_BUDGET) else None,
        cost=None if wishes.budget else cost,
        draft_s=GROW_S,
        other_s=OTHER_S,
        rate=drafter.rate,
    )
    most = wishes.budget or MAX_BUDGET
    return Speculation(drafter, PLAIN, FixedController(make_plan(drafter, policy, most)), max_nodes=most)


def _static(
    wishes: Wishes, drafter: HybridDrafter, artifact: Artifact | None, runtime: Runtime, cost: StepCost
) -> Speculation:
    """The same tree at every step: all of one that was given, or of the calibrated one what pays."""
    chosen = drafter if wishes.drafter == HYBRID else drafter.alone
    expected = None
    if wishes.shaped:
        topology = given_topology(wishes.tree, chosen.max_depth, chosen.name, vocab_size=runtime.spec.vocab_size)
    elif artifact is None:
        raise UsageError(
            "tree: a static one needs heads or a given shape",
            hint="medusa train all -m MODEL --out ./heads   or --tree 2x3, or leave trees dynamic",
        )
    else:
        topology = artifact.topology(MAX_BUDGET)
        if wishes.budget is None:
            expected = expected_budget(artifact, topology, chosen, runtime, cost)
    num_nodes = min(wishes.budget or (expected.num_nodes if expected else topology.num_nodes), topology.num_nodes)
    topology = topology.prefix(num_nodes)
    plan = make_plan(chosen, StaticPolicy(topology), num_nodes)
    return Speculation(chosen, topology, FixedController(plan), budget=expected)


def _guarded(
    found: Speculation, cost: StepCost, wishes: Wishes, on_trip: Callable[[Round], None] | None
) -> Speculation:
    guard = Guard(cost, breaker_rho=wishes.breaker_rho, on_trip=on_trip)
    controller = GuardedController(found.controller.plan(()), guard)
    return Speculation(found.drafter, found.topology, controller, found.max_nodes, found.budget)


def expected_budget(
    artifact: Artifact, topology: Topology, drafter: Drafter, runtime: Runtime, cost: StepCost
) -> Budget | None:
    """The budget that pays most by calibration and measured cost; None for a tree that was not calibrated."""
    acceptance = {node.path: node.acceptance for node in artifact.tree.nodes}
    if any(path not in acceptance for path in topology.rank_paths[1:]):
        return None
    gains = [acceptance[path] for path in topology.rank_paths[1:]]
    draft_s = draft_seconds(drafter, topology, runtime.spec.hidden_size)
    return best_of(budgets(gains, cost, draft_s, OTHER_S, max_nodes=MAX_BUDGET))
