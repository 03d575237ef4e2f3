"""What one request may ask for. Defaults are the exact, greedy ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from medusakit.errors import UsageError

MIN_TEMPERATURE = 1e-4
MIN_REPETITION_PENALTY = 0.01  # scores divided by less leave float32 or order nothing
MAX_SEED = 2**64 - 1
MAX_LOGPROBS = 20
ACCEPTANCE = ("exact", "typical", "dynamic")


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Request parameters. Temperature 0 is greedy; every processor is applied along the path that is walked.

    acceptance  "exact" (greedy at temperature 0, sample above); lossy: "typical", "dynamic" (verify/dynamic.py; not at
                temperature 0)
    eps, delta  of the lossy ones (Medusa, section 2.3.1): p > min(eps, delta * exp(-H))
    choice      index among several answers to one prompt, so that they differ under one seed
    logprobs    report the model's own log-probabilities (raw scores, temperature 1, before penalties): of each token
                and of this many best alternatives; None reports what the rule computed, which may be NaN
    score_prompt  also report the log-probabilities of the prompt's tokens (needs logprobs)
    grammar     the form of the answer (`verify.grammar.Grammar`); None: free
    """

    max_tokens: int = 512
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    acceptance: str = "exact"
    eps: float = 0.09
    delta: float = 0.3
    choice: int = 0
    logprobs: int | None = None
    score_prompt: bool = False
    grammar: Any = None

    @property
    def shown(self) -> frozenset[int]:
        """Control tokens that are text of the answer: marks of its form."""
        return frozenset() if self.grammar is None else frozenset(self.grammar.shown)

    def validate(self) -> None:
        """Raises UsageError that names the first value out of range, and the range."""
        _whole("max_tokens", self.max_tokens, 1)
        if self.temperature != 0:
            _number("temperature", self.temperature, MIN_TEMPERATURE, 100, also="0 (greedy), or ")
        _whole("top_k", self.top_k, 0, note=" (0: off)")
        _number("top_p", self.top_p, 0, 1, above=True)
        _number("min_p", self.min_p, 0, 1)
        _number("repetition_penalty", self.repetition_penalty, MIN_REPETITION_PENALTY, 100)
        _number("presence_penalty", self.presence_penalty, -2, 2)
        _number("frequency_penalty", self.frequency_penalty, -2, 2)
        if not isinstance(self.logit_bias, Mapping):
            raise UsageError(
                f"logit_bias is {self.logit_bias!r}; expected a mapping of token ids to numbers", hint="{42: -100.0}"
            )
        for token_id, bias in self.logit_bias.items():
            _whole("a token id of logit_bias", token_id, 0)
            _number(f"logit_bias of token {token_id}", bias, -100, 100)
        if self.seed is not None:
            _whole("seed", self.seed, 0, MAX_SEED)
        if self.grammar is not None and self.ignore_eos:
            raise UsageError("ignore_eos does not go with a grammar, which ends by itself", hint="ignore_eos=False")
        if isinstance(self.stop, str) or not all(isinstance(text, str) and text for text in self.stop):
            raise UsageError(f"stop is {self.stop!r}; expected a tuple of non-empty strings", hint='stop=("\\n\\n",)')
        if self.acceptance not in ACCEPTANCE:
            raise UsageError(
                f"acceptance is {self.acceptance!r}; expected one of {', '.join(ACCEPTANCE)}", hint='acceptance="exact"'
            )
        if self.acceptance == "dynamic" and self.temperature == 0:
            raise UsageError(
                "dynamic acceptance scales the temperature, and temperature is 0 (greedy)",
                hint="a temperature of 1.0, or the exact acceptance",
            )
        _number("eps", self.eps, 0, 1, above=True)
        _number("delta", self.delta, 0, 100, above=True)
        _whole("choice", self.choice, 0)
        if self.logprobs is not None:
            _whole("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        if self.score_prompt and self.logprobs is None:
            raise UsageError("score_prompt needs logprobs", hint="logprobs=0")
        for name in ("logprobs", "grammar"):
            if getattr(self, name) is not None and self.acceptance != "exact":
                raise UsageError(f"{name} goes with exact acceptance, not {self.acceptance}", hint='acceptance="exact"')


def _number(name: str, value: object, low: float, high: float, *, above: bool = False, also: str = "") -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not low <= value <= high or (above and value == low):  # type: ignore[operator]
        start = "above" if above else "from"
        hint = f"{name}: {min(max(1, low), high):g}"
        raise UsageError(f"{name} is {value!r}; expected {also}a number {start} {low:g} to {high:g}", hint=hint)


def _whole(name: str, value: object, low: int, high: int | None = None, *, note: str = "") -> None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or value < low or (high is not None and value > high):  # type: ignore[operator]
        limit = f"{low} or more" if high is None else f"{low} to {high}"
        raise UsageError(f"{name} is {value!r}; expected a whole number, {limit}{note}", hint=f"{name}: {low}")
