"""What is wrong with these heads on this model, by numbers.

Looked at: what the manifest says, what the tensors hold, and how often the next guess is right along answers that the
model gives here. Every fault names its remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from medusakit.artifact.io import Artifact
from medusakit.artifact.rope import recorded_rope
from medusakit.diagnosis.findings import Finding
from medusakit.diagnosis.guesses import ID_OFFSETS, SHIFTS, Guesses, Trace, answer, guess
from medusakit.diagnosis.positions import position_findings
from medusakit.diagnosis.states import best_side
from medusakit.diagnosis.tensors import TRAIN, is_bias, tensor_findings
from medusakit.drafters.base import Drafter
from medusakit.drafters.registry import load_drafter
from medusakit.errors import ArtifactError
from medusakit.models.spec import RopeSpec, WeightSource
from medusakit.runtimes.base import Runtime
from medusakit.text.tokenizer import Tokenizer

ANSWER_TOKENS = 48
_USUAL_ACCEPTANCE = 0.3  # of a first guess, where an artifact has no measured tree
_LOW = 0.6  # of the calibrated acceptance: other prompts alone do not cost as much
_ERRORS = 3.0  # standard errors by which another reading must be more often right
_REPEATS = 0.5  # share of guesses that repeat the root, over which heads were trained to: weak ones fall back to it
_GAP = 0.15  # share of the right guesses that a format may cost
_COVERED = 0.5  # share of the answers' tokens that a draft vocabulary holds at least


@dataclass(frozen=True)
class Case:
    """Heads and the model to run them on.

    prompts       token ids; the model answers them greedily
    open_runtime  (weights, rope or None for the model's own) -> a runtime with room for all prompts
    weights       the format to decode in
    """

    artifact: Artifact
    source: WeightSource
    tokenizer: Tokenizer
    prompts: Sequence[Sequence[int]]
    open_runtime: Callable[[str, RopeSpec | None], Runtime]
    weights: str = "auto"

    @cached_property
    def expected(self) -> float:
        """Acceptance of the best first guess as it was calibrated."""
        first = (node.acceptance for node in self.artifact.tree.nodes if node.path == (0,))
        return next(first, _USUAL_ACCEPTANCE)

    @cached_property
    def drafter(self) -> Drafter:
        return load_drafter(self.artifact, self.source)

    @property
    def trained_weights(self) -> str:
        """The format that the heads' hidden states came from; training's default where it is not recorded."""
        settings = self.artifact.manifest.provenance.recipe.get("settings", {})
        return str(settings.get("weights", "f32"))

    def answers(self, weights: str, rope: RopeSpec | None = None) -> list[Trace]:
        """What the model says in this format and with these positions."""
        runtime = self.open_runtime(weights, rope)
        try:
            return answer(runtime, self.prompts, self.tokenizer.eos_ids, ANSWER_TOKENS)
        finally:
            runtime.close()

    def is_low(self, guesses: Guesses) -> bool:
        """Clearly under what was calibrated: below the floor by two standard errors."""
        floor = _LOW * self.expected
        return bool(guesses.rate() + 2 * np.sqrt(floor * (1 - floor) / max(guesses.num, 1)) < floor)


def diagnose(case: Case) -> list[Finding]:
    """Every fault that is found, and how often the guesses were right (code `acceptance`)."""
    found = list(_manifest(case))
    if any(finding.code in ("hidden-size", "vocabulary") for finding in found):
        return found
    try:
        tensors = case.artifact.tensors()
        found += tensor_findings(tensors)
        load_drafter(case.artifact, case.source)
    except ArtifactError as error:
        code = "missing-biases" if any(is_bias(word) for word in error.message.split()) else "tensors"
        return [*found, Finding(code, "error", error.message, error.hint or TRAIN)]
    return [*found, *_measured(case, {finding.code for finding in found})]


def _manifest(case: Case) -> Iterator[Finding]:
    heads, spec = case.artifact.manifest.backbone, case.source.spec
    other = f"-m with the model that the heads are for ({heads.name}), or {TRAIN}"
    if heads.hidden_size != spec.hidden_size:
        evidence = f"the heads read {heads.hidden_size} numbers, the model's states have {spec.hidden_size}"
        yield Finding("hidden-size", "error", evidence, other)
    if heads.vocab_size != spec.vocab_size:
        evidence = f"the heads know {heads.vocab_size} token ids, the model {spec.vocab_size}"
        yield Finding("vocabulary", "error", evidence, other)
    if heads.tokenizer_hash and heads.tokenizer_hash != case.tokenizer.hash:
        evidence = f"the heads' tokenizer is {heads.tokenizer_hash[:12]}, the model's {case.tokenizer.hash[:12]}"
        yield Finding("tokenizer", "error", evidence, f"the tokenizer files that {heads.name} came with, or {TRAIN}")
    if heads.fingerprint != case.source.fingerprint:
        evidence = (
            f"trained on weights {heads.fingerprint[:12]} ({heads.name}), the model has "
            f"{case.source.fingerprint[:12]} ({spec.name})"
        )
        yield Finding(
            "base-revision", "error", evidence, f"the revision of {heads.name} they were trained on, or {TRAIN}"
        )


def _measured(case: Case, known: set[str]) -> Iterator[Finding]:
    traces = case.answers(case.weights)
    guesses = guess(case.drafter, traces)
    faults = list(_explanations(case, traces, guesses, known))
    yield from faults
    yield from _quantisation(case, guesses)
    evidence = (
        f"the next guess was right at {guesses.rate():.0%} of {guesses.num} places, {case.expected:.0%} were calibrated"
    )
    if not case.is_low(guesses):
        yield Finding("acceptance", "info", evidence)
    elif faults or known:
        yield Finding("acceptance", "warning", evidence, "as for the faults above")
    elif guesses.rate() < case.expected / 4:
        yield Finding("untrained", "error", f"{evidence}: no better than guesses of heads that learnt nothing", TRAIN)
    else:
        yield Finding("acceptance", "warning", evidence, "medusa train calibrate, or more answers: " + TRAIN)


def _explanations(case: Case, traces: Sequence[Trace], guesses: Guesses, known: set[str]) -> Iterator[Finding]:
    """Readings of the heads under which they would be right more often; the first that explains it is enough."""
    yield from _coverage(case, traces)
    yield from (positions := list(position_findings(case, recorded_rope(case.artifact), guesses)))
    if "untrained" in known or positions:  # zero heads repeat the root, which is no shift
        return
    if shifted := list(_shift(guesses, as_calibrated=case.expected > 0 and not case.is_low(guesses))):
        yield from shifted
    elif offset := list(_id_offset(guesses)):
        yield from offset
    elif case.is_low(guesses):
        yield from _norm(case, traces, guesses)


def _coverage(case: Case, traces: Sequence[Trace]) -> Iterator[Finding]:
    ids = case.artifact.tensors().get("draft_ids")
    said = np.array([token for trace in traces for token in trace.gen])
    if ids is not None and (share := float(np.isin(said, ids).mean())) < _COVERED:
        evidence = (
            f"the draft vocabulary of {len(ids)} tokens holds {share:.0%} of the {len(said)} tokens answered here"
        )
        yield Finding("vocabulary", "error", evidence, f"draft ids of this tokenizer: {TRAIN}")


def _shift(guesses: Guesses, *, as_calibrated: bool = False) -> Iterator[Finding]:
    """as_calibrated: they are as often right as was measured when they were made, so nothing was mistaken since."""
    best = max((shift for shift in SHIFTS if shift >= 0 or guesses.rate(shift) > _REPEATS), key=guesses.rate)
    if not best or not _clearly(guesses.rate(best), guesses.rate(), guesses.num):
        return
    if best == -1 and as_calibrated:
        evidence = (
            f"guesses repeat the token before at {guesses.rate(best):.0%} of places, as heads do until they learn, "
            f"and are right at {guesses.rate():.0%}, as was calibrated"
        )
        yield Finding("untrained", "error", evidence, f"more answers: {TRAIN}")
    else:
        evidence = (
            f"guesses are right about the token at {best:+d} at {guesses.rate(best):.0%} of places, and about the one "
            f"meant at {guesses.rate():.0%}"
        )
        yield Finding("head-shift", "error", evidence, f"number the heads by {-best:+d}, or {TRAIN}")


def _id_offset(guesses: Guesses) -> Iterator[Finding]:
    best = max(ID_OFFSETS, key=guesses.id_rate)
    if best and _clearly(guesses.id_rate(best), guesses.rate(), guesses.num):
        evidence = (
            f"ids are off by {best:+d}: so read, {guesses.id_rate(best):.0%} are right, else {guesses.rate():.0%}"
        )
        yield Finding("vocabulary", "error", evidence, f"draft ids of this tokenizer: {TRAIN}")


def _norm(case: Case, traces: Sequence[Trace], guesses: Guesses) -> Iterator[Finding]:
    side, better = best_side(case.drafter, traces, case.source)
    if _clearly(better.rate(), guesses.rate(), guesses.num):
        evidence = f"right at {better.rate():.0%} of places with states {side.words}, else at {guesses.rate():.0%}"
        remedy = f"train on the states that the LM head reads, after the final norm: {TRAIN}"
        yield Finding("norm-side", "error", evidence, remedy)


def _quantisation(case: Case, guesses: Guesses) -> Iterator[Finding]:
    """What the decoding format costs: the same heads on the states they were trained on."""
    decoding = case.source.default_weights if case.weights == "auto" else case.weights
    if decoding == case.trained_weights:
        return
    trained = guess(case.drafter, case.answers(case.trained_weights)).rate()
    evidence = f"right at {guesses.rate():.0%} of places in {decoding}, at {trained:.0%} in {case.trained_weights}"
    if trained - guesses.rate() > _GAP * trained + 2 * np.sqrt(0.25 / max(guesses.num, 1)):
        remedy = f'--weights {case.trained_weights}, or train on {decoding}: weights = "{decoding}" in the recipe'
        yield Finding("quantisation-gap", "warning", evidence, remedy)
    else:
        yield Finding("quantisation", "info", evidence)


def _clearly(better: float, found: float, num: int) -> bool:
    """Of rates at `num` places: more often by half, and by more than chance has."""
    error = np.sqrt((better * (1 - better) + found * (1 - found)) / max(num, 1))
    return bool(better > found + _ERRORS * error and better > 1.5 * found)
