"""From names to a working engine: model, tokenizer, runtime, heads that fit, and a plan that pays on this machine."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from medusakit.artifact.find import find_heads
from medusakit.artifact.io import Artifact
from medusakit.config import nearest
from medusakit.drafters.base import Drafter
from medusakit.drafters.registry import FAMILIES, HEADLESS, headless_drafter, load_drafter
from medusakit.engine.controller import Controller, PlainController, StaticController, make_plan
from medusakit.engine.measure import draft_seconds, remembered_steps
from medusakit.errors import UsageError
from medusakit.models.resolve import ResolvedModel, open_weights, resolve
from medusakit.models.spec import WeightSource
from medusakit.runtimes.base import Runtime
from medusakit.runtimes.onnx.runtime import load_onnx
from medusakit.runtimes.onnx.session import default_threads
from medusakit.text.tokenizer import Tokenizer, load_tokenizer
from medusakit.tree.cost import Budget, StepCost, best_budget
from medusakit.tree.policy import DynamicPolicy, StaticPolicy, TreePolicy
from medusakit.tree.search import parse_dense
from medusakit.tree.topology import Topology

OTHER_S = 3e-4  # walk, commit and emit of one row, measured on the embedded model (docs/performance.md)
MAX_BUDGET = 64
GROW_S = 2e-4  # growing the draft of one row without heads
FALLBACK = "suffix"  # drafts where no heads fit


@dataclass(frozen=True, slots=True)
class Loaded:
    """Everything a generation needs.

    topology  the tree of every step; the root alone where decoding is plain or trees are grown anew at every step
    max_nodes  rows of a pass at most, where trees are grown anew at every step
    budget    what is expected of a step; None without heads or with a given budget
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


def load_parts(
    model: str,
    *,
    heads: str = "auto",
    weights: str = "auto",
    drafter: str | None = None,
    tree: str = "auto",
    budget: int | None = None,
    threads: int | None = None,
    max_context: int | None = None,
    max_rows: int = 1,
    offline: bool = False,
) -> Loaded:
    """Open everything; see `LLM.load` for the arguments. Nothing stays open if it fails."""
    headless = headless_name(heads, drafter)
    resolved = resolve(model, offline=offline)
    source = open_weights(resolved)
    tokenizer = load_tokenizer(resolved)
    artifact = None
    if headless is None:
        artifact = find_heads(heads, source, model_path=resolved.path, drafter=drafter, tokenizer_hash=tokenizer.hash)
    runtime = load_onnx(source, weights=weights, threads=threads, max_rows=max_rows, max_context=max_context)
    nothing = Loaded(resolved, source, runtime, tokenizer, None, None, Topology.chain(0), None, None, PlainController())
    if artifact is None and headless is None and heads == "none":
        return nothing
    steps = remembered_steps(runtime, source.fingerprint, threads or default_threads())
    cost = StepCost.single(steps)
    withheld = budget is None and runtime.capabilities.exact != "bitwise-ties"
    if artifact is None:
        return without_heads(replace(nothing, cost=cost, withheld=withheld), headless or FALLBACK, tree, budget)
    loaded_drafter = load_drafter(artifact, source, threads=threads)
    topology = chosen_topology(artifact, tree)
    expected = None
    if budget is None and not withheld:
        expected = expected_budget(artifact, topology, loaded_drafter, runtime, cost)
    wanted = budget or (expected.num_nodes if expected else topology.num_nodes)
    num_nodes = 1 if withheld else min(wanted, topology.num_nodes)
    plan = make_plan(loaded_drafter, StaticPolicy(topology.prefix(num_nodes)), num_nodes)
    return Loaded(
        resolved,
        source,
        runtime,
        tokenizer,
        artifact,
        loaded_drafter,
        topology.prefix(num_nodes),
        expected,
        cost,
        StaticController([plan]),
        withheld,
    )


def headless_name(heads: str, drafter: str | None) -> str | None:
    """The drafter that was asked for, if it is one that needs no heads. Raises UsageError for a name that is none."""
    if drafter not in (None, *FAMILIES, *HEADLESS):
        raise UsageError(
            f"drafter {drafter!r} is not known; with heads: {', '.join(FAMILIES)}; without: {', '.join(HEADLESS)}",
            hint=f"--drafter {nearest(str(drafter), (*FAMILIES, *HEADLESS)) or FALLBACK}",
        )
    if drafter in HEADLESS and heads not in ("auto", "none"):
        raise UsageError(f"drafter {drafter} needs no heads, but {heads} was given", hint="leave out one of the two")
    return drafter if drafter in HEADLESS else None


def without_heads(parts: Loaded, name: str, tree: str, budget: int | None) -> Loaded:
    """`parts` with a drafter that needs no training. Its trees are grown anew at every step, from nothing up to what
    pays by measured cost, or to `budget` rows; a given dense tree is taken as it is."""
    drafter, beam = headless_drafter(name, vocab_size=parts.runtime.spec.vocab_size)
    if tree == "auto":
        cost = parts.cost if budget is None else None
        policy: TreePolicy = DynamicPolicy(
            beam.widths, branching=beam.branching, cost=cost, draft_s=GROW_S, other_s=OTHER_S
        )
        topology, most = parts.topology, budget or MAX_BUDGET
    else:
        topology = dense_topology(tree, drafter.max_depth)
        most = min(budget or topology.num_nodes, topology.num_nodes)
        topology = topology.prefix(1 if parts.withheld else most)
        policy = StaticPolicy(topology)
    most = 1 if parts.withheld else most
    return replace(
        parts,
        drafter=drafter,
        topology=topology,
        controller=StaticController([make_plan(drafter, policy, most)]),
        max_nodes=most if tree == "auto" else None,
    )


def expected_budget(
    artifact: Artifact, topology: Topology, drafter: Drafter, runtime: Runtime, cost: StepCost
) -> Budget | None:
    """The budget that pays most by calibration and measured cost; None for a tree that was not calibrated."""
    acceptance = {node.path: node.acceptance for node in artifact.tree.nodes}
    if any(path not in acceptance for path in topology.rank_paths[1:]):
        return None
    gains = [acceptance[path] for path in topology.rank_paths[1:]]
    draft_s = draft_seconds(drafter, topology, runtime.spec.hidden_size)
    return best_budget(gains, cost, draft_s, OTHER_S, max_nodes=MAX_BUDGET)


def chosen_topology(artifact: Artifact, tree: str) -> Topology:
    """The artifact's calibrated tree, or a dense one "DxB": D levels with B children under every node."""
    if tree == "auto":
        return artifact.topology(MAX_BUDGET)
    return dense_topology(tree, artifact.manifest.drafter.depth)


def dense_topology(tree: str, depth: int) -> Topology:
    """The dense tree "DxB". Raises UsageError if it is deeper than the drafter guesses."""
    topology = parse_dense(tree)
    if topology.max_depth > depth:
        raise UsageError(
            f"--tree {tree} is {topology.max_depth} deep, but the drafter guesses {depth} tokens ahead",
            hint=f"--tree {depth}x2",
        )
    return topology
