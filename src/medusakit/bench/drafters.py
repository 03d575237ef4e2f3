"""`medusa bench drafters`: every drafter that works with a model in one table, and what worse heads cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from medusakit.artifact.io import Artifact
from medusakit.bench.candidates import Candidate, all_candidates, trained
from medusakit.bench.circumstances import circumstances
from medusakit.bench.contest import Contest, ContestConfig, OnTurns, run_contest
from medusakit.bench.degraded import noisy
from medusakit.errors import UsageError
from medusakit.llm import LLM


@dataclass(frozen=True, slots=True)
class DraftersConfig:
    """folders: heads besides those that are found. strengths: of the noise on the heads in use (degraded.py).

    names   only these of the drafters that are found; empty: all
    budget  nodes of a step at most, for all; None: each drafter takes what is expected to pay
    """

    contest: ContestConfig = ContestConfig()
    folders: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    strengths: tuple[float, ...] = ()
    budget: int | None = None
    threads: int | None = None


def run_drafters(llm: LLM, config: DraftersConfig, on_turns: OnTurns | None = None) -> dict[str, Any]:
    """The JSON document: `drafters` by name, `degraded` by strength of noise. Raises UsageError, ArtifactError."""
    entries = named(
        list(all_candidates(llm.parts, config.folders, budget=config.budget, threads=config.threads)), config
    )
    worse = list(degraded(llm, config))
    everyone = [*entries, *(candidate for _, candidate in worse)]
    contest = run_contest(llm, [(one.name, one.controller) for one in everyone], config.contest, on_turns)
    asked = {"suite": config.contest.suite, "limit": config.contest.limit, "budget": config.budget}
    return {
        "drafters": {one.name: row(contest, one) for one in entries},
        "degraded": [{"noise": strength, **row(contest, one)} for strength, one in worse],
        "plain": {"tokens_per_s": contest.summary("plain")["tokens_per_s"]},
        "identical": contest.identical,
        "weights": llm.runtime.capabilities.weights,
        "seed": config.contest.seed,
        **circumstances(llm, asked, config.contest.params),
    }


def named(candidates: Sequence[Candidate], config: DraftersConfig) -> list[Candidate]:
    """Those that were asked for by name, and the given folders. Raises UsageError for a name that is not there."""
    names = [candidate.name for candidate in candidates]
    for name in config.names:
        if name not in names:
            raise UsageError(
                f"no drafter {name!r} works here; there are: {', '.join(names)}", hint=f"--only {names[-1]}"
            )
    return [one for one in candidates if not config.names or one.name in (*config.names, *config.folders)]


def degraded(llm: LLM, config: DraftersConfig) -> Iterator[tuple[float, Candidate]]:
    """The heads in use, unharmed and with noise of every strength, all with the same tree.

    Raises UsageError where there are no heads, or for a strength below 0.
    """
    if not config.strengths:
        return
    artifact = llm.parts.artifact
    if artifact is None:
        raise UsageError("there are no heads to degrade", hint="--heads ./heads --degrade 0.1,0.3")
    if min(config.strengths) < 0:
        raise UsageError(f"the noise {min(config.strengths):g} is below 0", hint="--degrade 0.1,0.3,1")
    for strength in sorted({0.0, *config.strengths}):
        harmed: Artifact = noisy(artifact, strength, seed=config.contest.seed) if strength else artifact
        name = f"{artifact.manifest.drafter.family}, noise {strength:g}"
        yield strength, trained(llm.parts, harmed, name=name, budget=config.budget, threads=config.threads)


def row(contest: Contest, candidate: Candidate) -> dict[str, Any]:
    """One drafter's figures. draft_ms: of a step, tree growing included, measured in the run."""
    found, faster = contest.summary(candidate.name), contest.speedup(candidate.name)
    return {
        "family": candidate.family,
        "params": candidate.num_params,
        "bytes": candidate.num_bytes,
        "draft_ms": found["ms_per_step"]["draft"],
        "nodes_per_step": found["nodes_per_step"],
        "tau": found["tau"],
        "rho": found["rho"],
        "rho_eff": found["rho_eff"],
        "tokens_per_s": found["tokens_per_s"],
        "speedup": faster["ratio"],
        "ci95": faster["ci95"],
        "by_category": {
            category: {
                "tau": contest.summary(candidate.name, category)["tau"],
                "speedup": faster["by_category"][category],
            }
            for category in contest.categories
        },
    }
