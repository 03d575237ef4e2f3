"""`medusa bench grid`: which tree pays. Dense D x B trees and budgets of the calibrated tree, run by the real engine.

Of every tree: tau and rho_eff (summary.py) against T_verify, the time of its verify pass, and the speed-up over plain
decoding. A tree is on the Pareto front if no other gives as much for a cheaper pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medusakit.artifact.find import packaged_heads
from medusakit.artifact.io import Artifact, load_artifact, save_provenance
from medusakit.bench.candidates import static
from medusakit.bench.circumstances import circumstances
from medusakit.bench.contest import PLAIN as PLAIN_NAME
from medusakit.bench.contest import Contest, ContestConfig, OnTurns, run_contest
from medusakit.drafters.base import Drafter
from medusakit.drafters.registry import load_drafter
from medusakit.engine.controller import Controller
from medusakit.errors import ArtifactError, UsageError
from medusakit.llm import LLM
from medusakit.tree.search import dense_grid
from medusakit.tree.topology import PLAIN, Topology

DEPTHS = (2, 3, 4)
BRANCHINGS = (2, 3, 4)
BUDGETS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
Point = dict[str, Any]


@dataclass(frozen=True, slots=True)
class GridConfig:
    """depths, branchings: of the dense trees. budgets: nodes of the calibrated tree, root included."""

    contest: ContestConfig = ContestConfig()
    depths: tuple[int, ...] = DEPTHS
    branchings: tuple[int, ...] = BRANCHINGS
    budgets: tuple[int, ...] = BUDGETS
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class GridTree:
    """A tree to run. kind: dense, calibrated, or plain (the root alone)."""

    name: str
    kind: str
    topology: Topology

    @property
    def branching(self) -> int:
        """Children under one node, at most."""
        return max((len(children) for children in self.topology.children), default=0)


def run_grid(llm: LLM, config: GridConfig, on_turns: OnTurns | None = None) -> dict[str, Any]:
    """The JSON document: points, pareto, best. Raises UsageError without a drafter or without a tree to run."""
    drafter = _drafter(llm, config.threads)
    trees = list(grid_trees(config, drafter.max_depth, llm.parts.artifact))
    if not trees:
        raise UsageError(
            f"no tree to run: the drafter guesses {drafter.max_depth} tokens ahead", hint="--depths 2 --branchings 2,3"
        )
    entries: list[tuple[str, Controller]] = [(tree.name, static(drafter, tree.topology)) for tree in trees]
    contest = run_contest(llm, entries, config.contest, on_turns)
    points = [_point(contest, GridTree(PLAIN_NAME, PLAIN_NAME, PLAIN)), *(_point(contest, tree) for tree in trees)]
    asked = {"suite": config.contest.suite, "limit": config.contest.limit, "drafter": drafter.name}
    return {
        "points": points,
        "pareto": pareto(points, "tau"),
        "pareto_rho_eff": pareto(points, "rho_eff"),
        "best": max(points, key=lambda point: float(point["speedup"])),
        "identical": contest.identical,
        "weights": llm.runtime.capabilities.weights,
        "seed": config.contest.seed,
        **circumstances(llm, asked, config.contest.params),
    }


def grid_trees(config: GridConfig, max_depth: int, artifact: Artifact | None) -> Iterator[GridTree]:
    """Dense trees that the drafter is deep enough for, then the calibrated tree at every budget that it fills."""
    for depth, branching, topology in dense_grid(config.depths, config.branchings):
        if depth <= max_depth:
            yield GridTree(f"{depth}x{branching}", "dense", topology)
    for budget in config.budgets:
        if artifact is not None and 2 <= budget <= len(artifact.tree.nodes) + 1:
            yield GridTree(f"calibrated-{budget}", "calibrated", artifact.topology(budget))


def pareto(points: Sequence[Point], gain: str) -> list[Point]:
    """The points that no other one beats: from the cheapest verify pass up, each gives more than all before it."""
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (point["verify_ms"], -point[gain])):
        if not front or point[gain] > front[-1][gain]:
            front.append(point)
    return front


def check_writable(heads: str) -> None:
    """Before anything is measured. Raises UsageError unless `heads` names a folder of the user's own."""
    hint = "medusa bench grid --heads ./heads --write"
    if heads in ("auto", "none"):
        raise UsageError("--write needs the heads' folder that the winner is written into", hint=hint)
    if Path(heads).expanduser().resolve().is_relative_to(packaged_heads().resolve()):
        raise UsageError(
            f"{heads} belongs to the package, so nothing is written there", hint=f"cp -r {heads} ./heads; {hint}"
        )


def write_winner(artifact: Artifact, document: dict[str, Any]) -> dict[str, Any]:
    """Make the best tree what the artifact recommends: it counts like a setting, below flags, variables and file.

    Returns what was written: `tree` for a dense tree, `budget` for a calibrated one or (1) for plain decoding.
    Raises ArtifactError if the folder has changed meanwhile, RuntimeFailure if it cannot be written.
    """
    if load_artifact(artifact.path).manifest != artifact.manifest:
        raise ArtifactError(
            f"the heads in {artifact.path} were replaced while the grid ran, so nothing was written",
            hint=f"medusa bench grid --heads {artifact.path} --write",
        )
    best, made = document["best"], artifact.manifest.provenance
    settings = {"tree": best["name"]} if best["kind"] == "dense" else {"budget": best["budget"]}
    others = {key: value for key, value in made.recipe.get("defaults", {}).items() if key not in ("tree", "budget")}
    measured = {key: best[key] for key in ("name", "tau", "rho_eff", "verify_ms", "speedup")}
    where = {"weights": document["weights"], "cpu": document["machine"]["cpu"]}
    save_provenance(
        artifact,
        made.model_copy(
            update={
                "recipe": {**made.recipe, "defaults": others | settings},
                "metrics": {**made.metrics, "grid": measured | where},
            }
        ),
    )
    return settings


def _drafter(llm: LLM, threads: int | None) -> Drafter:
    """The heads by themselves where there are some, else the drafter in use."""
    parts = llm.parts
    if parts.artifact is not None:
        return load_drafter(parts.artifact, parts.source, threads=threads)
    if parts.drafter is None:
        raise UsageError("the grid needs a drafter, and none is in use", hint="medusa bench grid --drafter suffix")
    return parts.drafter


def _point(contest: Contest, tree: GridTree) -> Point:
    """budget: nodes of a pass, root included; verify_ms: measured in the run, which cuts trees at an answer's end."""
    found, faster = contest.summary(tree.name), contest.speedup(tree.name)
    plain = tree.name == PLAIN_NAME
    return {
        "name": tree.name,
        "kind": tree.kind,
        "depth": tree.topology.max_depth,
        "branching": tree.branching,
        "budget": tree.topology.num_nodes,
        "tau": found["tau"],
        "rho": found["rho"],
        "rho_eff": found["rho_eff"],
        "verify_ms": found["ms_per_step"]["forward"],
        "draft_ms": found["ms_per_step"]["draft"],
        "tokens_per_s": found["tokens_per_s"],
        "speedup": 1.0 if plain else faster["ratio"],
        "ci95": [1.0, 1.0] if plain else faster["ci95"],
    }
