"""`medusa tree`: the token tree that decoding uses, and which budget pays on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from medusakit.cli.app import App, current_app
from medusakit.cli.group import Group
from medusakit.cli.options import MODEL, json_option, settings
from medusakit.errors import ArtifactError, CacheError

if TYPE_CHECKING:
    from medusakit.artifact.io import Artifact
    from medusakit.llm import LLM
    from medusakit.tree.cost import Budget
    from medusakit.tree.topology import Topology

SHOWN_NODES = 16


@click.group(cls=Group)
def tree() -> None:
    """The token tree: which guesses one pass verifies."""


@tree.command()
@settings(*MODEL, "budget", "tree")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Also draw the tree into this SVG file.")
@json_option
def show(svg: Path | None, json_file: str | None) -> None:
    """Draw the calibrated tree of the heads, cut to what pays here, with how often each node is accepted.

    Decoding uses it with --disable-dynamic-tree; by default a tree is grown anew at every step. A tree given with
    --tree (DxB, or a file) is drawn as it is, without a model.
    """
    app = current_app()
    if (topology := given_tree(app)) is not None:
        drawing = Drawing(topology, None, f"tree {app.config.tree}", "this tree was given, not chosen")
    else:
        drawing = drawing_of(app, *load(app))
    _deliver(app, drawing, svg, json_file)


@dataclass(frozen=True, slots=True)
class Drawing:
    """What `tree show` shows. acceptance: per drafted node, None where it was not calibrated."""

    topology: Topology
    acceptance: list[float] | None
    title: str
    remark: str
    budget: Budget | None = None


def given_tree(app: App) -> Topology | None:
    """The tree that --tree gives by shape or node by node, cut to --budget; None where it names one of the heads'."""
    from medusakit.cli.trees import read_tree
    from medusakit.tree.given import MAX_DEPTH, NAMES, given_topology

    tree = read_tree(app.config.tree)
    if tree in NAMES:
        return None
    whole = given_topology(tree, MAX_DEPTH, "a drafter at most")
    return whole.prefix(min(app.config.budget or whole.num_nodes, whole.num_nodes))


def drawing_of(app: App, llm: LLM, artifact: Artifact) -> Drawing:
    """The tree of a model's heads, with what was calibrated and what is expected."""
    topology = shown_topology(app, llm, artifact)
    title = f"{artifact.manifest.drafter.family} tree for {artifact.manifest.backbone.name}"
    return Drawing(topology, acceptance_of(artifact, topology), title, _expectation(llm), llm.parts.speculation.budget)


def _deliver(app: App, drawing: Drawing, svg: Path | None, json_file: str | None) -> None:
    from medusakit.cli.ui import write_json
    from medusakit.tree import render

    if svg:
        _write(svg, render.svg(drawing.topology, drawing.acceptance, title=drawing.title))
        app.ui.note(f"wrote {svg}")
    if json_file:
        write_json(app.ui, json_file, _document(drawing))
    if json_file != "-":
        app.ui.line(render.draw(drawing.topology, drawing.acceptance))
        app.ui.line(drawing.remark)


@tree.command()
@settings(*MODEL)
@click.option("--again", is_flag=True, help="Measure the cost of a pass again.")
@json_option
def search(again: bool, json_file: str | None) -> None:
    """Expected tokens and speed-up of every budget, from measured acceptance and the measured cost of a pass."""
    from medusakit.cli.ui import write_json
    from medusakit.tree.cost import best_of, budgets

    app = current_app()
    llm, artifact = load(app)
    draft_s, other_s, cost = _costs(llm, artifact, again)
    gains = [node.acceptance for node in artifact.tree.nodes]
    found = budgets(gains, cost, draft_s, other_s)
    best = best_of(found)
    if json_file:
        draft_ms = 1e3 * float(draft_s[best.num_nodes - 1])
        document = {"draft_ms": draft_ms, "other_ms": 1e3 * other_s, "best": asdict(best)}
        write_json(app.ui, json_file, document | {"budgets": [asdict(budget) for budget in found]})
    if json_file != "-":
        _show_budgets(app, llm, found, best, float(draft_s[best.num_nodes - 1]))


def load(app: App) -> tuple[LLM, Artifact]:
    """The model with its heads and their calibrated tree. Raises ArtifactError where there are none."""
    llm = app.load(dynamic_tree=False)
    if llm.parts.artifact is None:
        raise ArtifactError(
            f"{app.config.model} decodes without heads here, so there is no calibrated tree",
            hint=f"medusa train all -m {app.config.model} --out ./heads",
        )
    return llm, llm.parts.artifact


def shown_topology(app: App, llm: LLM, artifact: Artifact) -> Topology:
    """What decoding uses; where that is plain decoding, the calibrated tree's best nodes all the same."""
    if llm.parts.speculation.topology.num_nodes > 1 or app.config.budget:
        return llm.parts.speculation.topology
    return artifact.topology(SHOWN_NODES)


def acceptance_of(artifact: Artifact, topology: Topology) -> list[float] | None:
    """Measured acceptance of each drafted node; None for a tree with nodes that were not calibrated."""
    known = {node.path: node.acceptance for node in artifact.tree.nodes}
    paths = topology.rank_paths[1:]
    return [known[path] for path in paths] if all(path in known for path in paths) else None


def _costs(llm: LLM, artifact: Artifact, again: bool) -> tuple[Any, float, Any]:
    """Draft seconds of every budget, other seconds, cost of a pass."""
    from medusakit.engine.measure import draft_seconds, measure_cost
    from medusakit.engine.speculation import OTHER_S
    from medusakit.tree.cost import StepCost

    drafter, cost = llm.parts.speculation.drafter, llm.parts.cost
    assert drafter is not None and cost is not None
    if again:
        cost = StepCost(measure_cost(llm.runtime)[0])
    whole = artifact.topology(len(artifact.tree.nodes) + 1)
    return draft_seconds(drafter, whole, llm.runtime.spec.hidden_size), OTHER_S, cost


def _document(drawing: Drawing) -> dict[str, Any]:
    topology, budget = drawing.topology, drawing.budget
    shares: Sequence[float | None] = drawing.acceptance or [None] * (topology.num_nodes - 1)
    paths = topology.rank_paths[1:]
    nodes = [{"path": path, "acceptance": share} for path, share in zip(paths, shares, strict=True)]
    return {"num_nodes": topology.num_nodes, "nodes": nodes, "expected": asdict(budget) if budget else None}


def _expectation(llm: LLM) -> str:
    budget = llm.parts.speculation.budget
    if budget is None:
        return "this budget was given, not chosen"
    if budget.num_nodes == 1:
        return "decoding is plain here: no budget is expected to pay on this machine"
    return f"expected {budget.tau:.2f} tokens a step, {budget.speedup:.2f}x of plain decoding on this machine"


def _show_budgets(app: App, llm: LLM, found: list[Budget], best: Budget, draft_s: float) -> None:
    sizes = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, best.num_nodes}
    rows = [
        (budget.num_nodes, f"{1e3 * budget.step_s:.1f}", f"{budget.tau:.2f}", f"{budget.speedup:.2f}x", mark)
        for budget in found
        if budget.num_nodes in sizes
        for mark in ["best" if budget == best else ""]
    ]
    app.ui.table("", ("nodes", "step ms", "expected tau", "speed-up", ""), rows, text=0)
    weights = llm.runtime.capabilities.weights
    app.ui.line(f"weights {weights}, draft {1e3 * draft_s:.1f} ms, calibrated on held-out answers")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CacheError(f"cannot write {path}: {error.strerror}", hint="--svg another path") from None
