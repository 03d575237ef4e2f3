"""`medusa bench grid`: which tree pays. The real engine runs dense D x B trees, and calibrated and grown trees of
several budgets.

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
from medusakit.bench.candidates import alone, speculating, static
from medusakit.bench.circumstances import circumstances
from medusakit.bench.contest import PLAIN as PLAIN_NAME
from medusakit.bench.contest import Contest, ContestConfig, OnTurns, run_contest
from medusakit.drafters.base import Drafter
from medusakit.engine.controller import Controller, PlainController
from medusakit.engine.wishes import Wishes
from medusakit.errors import ArtifactError, UsageError
from medusakit.llm import LLM
from medusakit.tree.search import dense_grid
from medusakit.tree.topology import Topology

DEPTHS = (2, 3, 4)
BRANCHINGS = (2, 3, 4)
BUDGETS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
TREE_SETTINGS = ("tree", "budget", "dynamic_tree")
Point = dict[str, Any]


@dataclass(frozen=True, slots=True)
class GridConfig:
    """depths, branchings: of the dense trees. budgets: nodes, root included, of the calibrated and of grown trees.

    drafter  the one that was asked for, if any: it grows the trees; along static ones the heads guess alone
    """

    contest: ContestConfig = ContestConfig()
    depths: tuple[int, ...] = DEPTHS
    branchings: tuple[int, ...] = BRANCHINGS
    budgets: tuple[int, ...] = BUDGETS
    drafter: str | None = None
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A way to make trees. kind: dense, calibrated, dynamic (grown at every step), or plain (the root alone).

    budget  nodes of a pass, root included (of dynamic trees, at most)
    shape   depth, and children under one node at most; None where every step has its own
    """

    kind: str
    budget: int
    controller: Controller
    shape: tuple[int, int] | None

    @property
    def name(self) -> str:
        if self.kind == "dense" and self.shape is not None:
            return f"{self.shape[0]}x{self.shape[1]}"
        return self.kind if self.kind == PLAIN_NAME else f"{self.kind}-{self.budget}"

    @classmethod
    def of_tree(cls, kind: str, drafter: Drafter, topology: Topology) -> Entry:
        branching = max(map(len, topology.children))
        return cls(kind, topology.num_nodes, static(drafter, topology), (topology.max_depth, branching))


def run_grid(llm: LLM, config: GridConfig, on_turns: OnTurns | None = None) -> dict[str, Any]:
    """The JSON document: points, pareto, best. Raises UsageError without a drafter or without a tree to run."""
    entries = list(grid_entries(llm, config))
    if not entries:
        raise UsageError("no tree to run", hint="--depths 2 --branchings 2,3")
    contest = run_contest(llm, [(entry.name, entry.controller) for entry in entries], config.contest, on_turns)
    plain = Entry(PLAIN_NAME, 1, PlainController(), (0, 0))
    points = [_point(contest, entry) for entry in (plain, *entries)]
    asked = {"suite": config.contest.suite, "limit": config.contest.limit, "drafter": config.drafter}
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


def grid_entries(llm: LLM, config: GridConfig) -> Iterator[Entry]:
    """Dense trees that the drafter is deep enough for; the calibrated tree at every budget that it fills; grown trees.

    Raises UsageError without a drafter.
    """
    drafter, artifact = alone(llm.parts, config.threads), llm.parts.artifact
    if drafter is None:
        raise UsageError("the grid needs a drafter, and none is in use", hint="medusa bench grid --drafter suffix")
    for depth, _, topology in dense_grid(config.depths, config.branchings):
        if depth <= drafter.max_depth:
            yield Entry.of_tree("dense", drafter, topology)
    for budget in config.budgets:
        if artifact is not None and 2 <= budget <= len(artifact.tree.nodes) + 1:
            yield Entry.of_tree("calibrated", drafter, artifact.topology(budget))
    for budget in config.budgets:
        grown = speculating(llm.parts, Wishes(config.drafter, budget=budget), artifact, config.threads)
        yield Entry("dynamic", budget, grown.controller, None)


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

    Returns what was written, see `recommended`.
    Raises ArtifactError if the folder has changed meanwhile, RuntimeFailure if it cannot be written.
    """
    if load_artifact(artifact.path).manifest != artifact.manifest:
        raise ArtifactError(
            f"the heads in {artifact.path} were replaced while the grid ran, so nothing was written",
            hint=f"medusa bench grid --heads {artifact.path} --write",
        )
    best, made = document["best"], artifact.manifest.provenance
    settings = recommended(best)
    others = {key: value for key, value in made.recipe.get("defaults", {}).items() if key not in TREE_SETTINGS}
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


def recommended(best: Point) -> dict[str, Any]:
    """The settings that make decoding do what a point did."""
    if best["kind"] == "dense":
        return {"tree": best["name"]}
    budget = {"budget": best["budget"]}
    return budget | {"dynamic_tree": False} if best["kind"] == "calibrated" else budget


def _point(contest: Contest, entry: Entry) -> Point:
    """verify_ms: of a pass, measured in the run, in which the last trees of an answer are cut."""
    found = contest.summary(entry.name)
    plain = entry.kind == PLAIN_NAME
    faster = {"ratio": 1.0, "ci95": [1.0, 1.0]} if plain else contest.speedup(entry.name)
    depth, branching = entry.shape or (len(found["accepted_by_depth"]), None)
    return {
        "name": entry.name,
        "kind": entry.kind,
        "depth": depth,
        "branching": branching,
        "budget": entry.budget,
        "nodes_per_step": found["nodes_per_step"],
        "tau": found["tau"],
        "rho": found["rho"],
        "rho_eff": found["rho_eff"],
        "verify_ms": found["ms_per_step"]["forward"],
        "draft_ms": found["ms_per_step"]["draft"],
        "tokens_per_s": found["tokens_per_s"],
        "speedup": faster["ratio"],
        "ci95": faster["ci95"],
    }
