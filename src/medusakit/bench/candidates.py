"""Drafters and trees that are to be compared, each with the controller that decoding would give it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from medusakit.artifact.find import fitting_heads
from medusakit.artifact.fits import DRAFT_IDS
from medusakit.artifact.io import TENSORS, Artifact, check_fits, load_artifact
from medusakit.drafters.base import Drafter
from medusakit.drafters.draft_model.drafter import DraftModelDrafter
from medusakit.drafters.hybrid.drafter import NAME as HYBRID
from medusakit.drafters.registry import DRAFT_MODEL, FAMILIES, HEADLESS, load_drafter
from medusakit.engine.controller import Controller, FixedController
from medusakit.engine.loading import Loaded
from medusakit.engine.plan import make_plan
from medusakit.engine.remembered import remembered_cost
from medusakit.engine.speculation import Speculation, speculation
from medusakit.engine.wishes import Wishes
from medusakit.runtimes.onnx.session import default_threads
from medusakit.tree.policy import StaticPolicy
from medusakit.tree.topology import Topology


@dataclass(frozen=True, slots=True)
class Candidate:
    """One drafter with its way to use it.

    family      heads' family, or the drafter's own name where it needs no heads
    num_params  trained parameters; num_bytes: of the drafter's file. 0 where nothing was trained
    """

    name: str
    family: str
    controller: Controller
    num_params: int = 0
    num_bytes: int = 0


def all_candidates(
    parts: Loaded, folders: Sequence[str] = (), *, budget: int | None = None, threads: int | None = None
) -> Iterator[Candidate]:
    """The best fitting heads of every family, the given folders, a second model if one was loaded, every drafter that
    needs neither, and heads and text together.

    budget  nodes of a step at most, the same for all; None: each takes what is expected to pay
    Raises ArtifactError for a folder that cannot be read or was made for another model.
    """
    parts = with_cost(parts, threads)
    for folder, family in first_of_families(fitting_heads(parts.source, parts.resolved.path)):
        artifact = load_artifact(folder)
        parts = parts if parts.artifact else replace(parts, artifact=artifact)  # loaded with a drafter without heads
        yield trained(parts, artifact, name=family, budget=budget, threads=threads)
    for given in folders:
        artifact = load_artifact(Path(given).expanduser())
        check_fits(artifact, parts.source, tokenizer_hash=parts.tokenizer.hash)
        yield trained(parts, artifact, name=given, budget=budget, threads=threads)
    if parts.second is not None:
        yield second_model(parts, parts.second, budget=budget)
    for name in HEADLESS:
        yield headless(parts, name, budget=budget)
    yield together(parts, budget=budget, threads=threads)


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
    """Heads alone, as decoding would use them."""
    wishes = Wishes(artifact.manifest.drafter.family, budget=budget)
    found = speculating(parts, wishes, artifact, threads)
    return _candidate(name, artifact.manifest.drafter.family, found, artifact)


def headless(parts: Loaded, name: str, *, budget: int | None = None) -> Candidate:
    """A drafter that needs no heads."""
    found = speculating(parts, Wishes(name, budget=budget), None)
    return _candidate(name, name, found, None)


def second_model(parts: Loaded, drafter: DraftModelDrafter, *, budget: int | None = None) -> Candidate:
    """Another model of the same vocabulary as drafter, the classic way (2211.17192)."""
    found = speculating(parts, Wishes(DRAFT_MODEL, budget=budget), None)
    return Candidate(DRAFT_MODEL, DRAFT_MODEL, found.controller, drafter.num_params, drafter.num_bytes)


def together(parts: Loaded, *, budget: int | None = None, threads: int | None = None) -> Candidate:
    """The heads in use and what needs none, in one tree: its size is that of the heads."""
    found = speculating(parts, Wishes(HYBRID, budget=budget), parts.artifact, threads)
    return _candidate(HYBRID, HYBRID, found, parts.artifact)


def static(drafter: Drafter, topology: Topology) -> FixedController:
    """The same tree at every step, whatever it costs."""
    return FixedController(make_plan(drafter, StaticPolicy(topology), topology.num_nodes))


def with_cost(parts: Loaded, threads: int | None) -> Loaded:
    """With measured T(n), which plain decoding is loaded without."""
    if parts.cost is not None:
        return parts
    cost = remembered_cost(parts.runtime, parts.source.fingerprint, threads or default_threads())
    return replace(parts, cost=cost)


def speculating(parts: Loaded, wishes: Wishes, artifact: Artifact | None, threads: int | None = None) -> Speculation:
    """What decoding would make of these wishes and heads, on the model that is loaded."""
    cost, withheld = with_cost(parts, threads).cost, parts.withheld and wishes.budget is None
    assert cost is not None
    second = parts.second if wishes.drafter == DRAFT_MODEL else None
    return speculation(
        wishes, artifact, parts.source, parts.runtime, cost, second=second, threads=threads, withheld=withheld
    )


def alone(parts: Loaded, threads: int | None = None) -> Drafter | None:
    """The heads by themselves where there are some, else the drafter in use: what guesses along a static tree."""
    if parts.artifact is None:
        return parts.speculation.drafter
    return load_drafter(parts.artifact, parts.source, threads=threads)


def _candidate(name: str, family: str, found: Speculation, artifact: Artifact | None) -> Candidate:
    if artifact is None:
        return Candidate(name, family, found.controller)
    num_params = sum(tensor.size for key, tensor in artifact.tensors().items() if key != DRAFT_IDS)
    return Candidate(name, family, found.controller, num_params, (artifact.path / TENSORS).stat().st_size)
