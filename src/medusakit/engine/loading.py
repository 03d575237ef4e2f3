"""From names to a working engine: model, tokenizer, runtime, heads that fit, and a plan that pays on this machine."""

from __future__ import annotations

from dataclasses import dataclass, field

from medusakit.artifact.find import find_heads
from medusakit.artifact.io import Artifact
from medusakit.drafters.base import Drafter
from medusakit.drafters.registry import load_drafter
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
from medusakit.tree.policy import StaticPolicy
from medusakit.tree.search import parse_dense
from medusakit.tree.topology import Topology

OTHER_S = 3e-4  # walk, commit and emit of one row, measured on the embedded model (docs/performance.md)
MAX_BUDGET = 64


@dataclass(frozen=True, slots=True)
class Loaded:
    """Everything a generation needs.

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
    resolved = resolve(model, offline=offline)
    source = open_weights(resolved)
    tokenizer = load_tokenizer(resolved)
    artifact = find_heads(heads, source, model_path=resolved.path, drafter=drafter, tokenizer_hash=tokenizer.hash)
    runtime = load_onnx(source, weights=weights, threads=threads, max_rows=max_rows, max_context=max_context)
    nothing = Loaded(resolved, source, runtime, tokenizer, None, None, Topology.chain(0), None, None, PlainController())
    if artifact is None:
        return nothing
    loaded_drafter = load_drafter(artifact, source, threads=threads)
    topology = chosen_topology(artifact, tree)
    steps = remembered_steps(runtime, source.fingerprint, threads or default_threads())
    cost = StepCost.single(steps)
    withheld = budget is None and runtime.capabilities.exact != "bitwise-ties"
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
    depth = artifact.manifest.drafter.depth
    if tree == "auto":
        return artifact.topology(MAX_BUDGET)
    topology = parse_dense(tree)
    if topology.max_depth > depth:
        raise UsageError(
            f"--tree {tree} is {topology.max_depth} deep, but the drafter has {depth} heads", hint=f"--tree {depth}x2"
        )
    return topology
