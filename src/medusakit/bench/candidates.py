"""Drafters and trees that are to be compared, each with the controller that decoding would give it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from medusakit.artifact.find import fitting_heads
from medusakit.artifact.fits import DRAFT_IDS
from medusakit.artifact.io import TENSORS, Artifact, check_fits, load_artifact
from medusakit.drafters.base import Drafter
from medusakit.drafters.registry import FAMILIES, HEADLESS, load_drafter
from medusakit.engine.controller import Controller, StaticController, make_plan
from medusakit.engine.loading import Loaded, chosen_topology, expected_budget, without_heads
from medusakit.engine.measure import remembered_steps
from medusakit.runtimes.onnx.session import default_threads
from medusakit.tree.cost import StepCost
from medusakit.tree.policy import StaticPolicy
from medusakit.tree.topology import Topology


@dataclass(frozen=True, slots=True)
class Candidate:
    """One drafter with its way to use it.

    family      heads' family, or the drafter's own name where it needs no heads
    num_params  trained parameters; num_bytes: of the drafter's file. 0 without heads
    """

    name: str
    family: str
    drafter: Drafter
    controller: Controller
    num_params: int = 0
    num_bytes: int = 0


def all_candidates(
    parts: Loaded, folders: Sequence[str] = (), *, budget: int | None = None, threads: int | None = None
) -> Iterator[Candidate]:
    """The best fitting heads of every family, the given folders, and every drafter that needs no heads.

    budget  nodes of a step at most, the same for all; None: each takes what is expected to pay
    Raises ArtifactError for a folder that cannot be read or was made for another model.
    """
    parts = with_cost(parts, threads)
    for folder, family in first_of_families(fitting_heads(parts.source, parts.resolved.path)):
        yield trained(parts, load_artifact(folder), name=family, budget=budget, threads=threads)
    for given in folders:
        artifact = load_artifact(Path(given).expanduser())
        check_fits(artifact, parts.source, tokenizer_hash=parts.tokenizer.hash)
        yield trained(parts, artifact, name=given, budget=budget, threads=threads)
    for name in HEADLESS:
        yield headless(parts, name, budget=budget)


def first_of_families(found: Iterator[tuple[Path, str]]) -> Iterator[tuple[Path, str]]:
    """The first folder of each family that this version runs, in the order of the registry."""
    folders: dict[str, Path] = {}
    for folder, family in found:
        folders.setdefault(family, folder)
    return ((folders[family], family) for family in FAMILIES if family in folders)


def trained(
    parts: Loaded,
    artifact: Artifact,
    *,
    name: str,
    budget: int | None = None,
    threads: int | None = None,
) -> Candidate:
    """Heads with their calibrated tree, cut to `budget` or to what is expected to pay, as decoding does it."""
    drafter = load_drafter(artifact, parts.source, threads=threads)
    topology = chosen_topology(artifact, "auto")
    if budget is None:
        budget = 1 if parts.withheld else _paying_budget(with_cost(parts, threads), artifact, topology, drafter)
    tensors = artifact.tensors()
    return Candidate(
        name,
        artifact.manifest.drafter.family,
        drafter,
        static(drafter, topology.prefix(min(budget, topology.num_nodes))),
        sum(tensor.size for key, tensor in tensors.items() if key != DRAFT_IDS),
        (artifact.path / TENSORS).stat().st_size,
    )


def headless(parts: Loaded, name: str, *, budget: int | None = None) -> Candidate:
    """A drafter that needs no heads, with trees grown anew at every step."""
    loaded = without_heads(replace(parts, artifact=None), name, "auto", budget)
    assert loaded.drafter is not None
    return Candidate(name, name, loaded.drafter, loaded.controller)


def static(drafter: Drafter, topology: Topology) -> StaticController:
    """The same tree at every step, whatever it costs."""
    return StaticController([make_plan(drafter, StaticPolicy(topology), topology.num_nodes)])


def with_cost(parts: Loaded, threads: int | None) -> Loaded:
    """With measured T(n), which plain decoding is loaded without."""
    if parts.cost is not None:
        return parts
    steps = remembered_steps(parts.runtime, parts.source.fingerprint, threads or default_threads())
    return replace(parts, cost=StepCost.single(steps))


def _paying_budget(parts: Loaded, artifact: Artifact, topology: Topology, drafter: Drafter) -> int:
    assert parts.cost is not None
    expected = expected_budget(artifact, topology, drafter, parts.runtime, parts.cost)
    return topology.num_nodes if expected is None else expected.num_nodes
