"""What is asked of a model that is to be loaded: how it drafts, and what runs it."""

from __future__ import annotations

from dataclasses import dataclass

from medusakit.config import nearest
from medusakit.drafters.hybrid.drafter import NAME as HYBRID
from medusakit.drafters.registry import DRAFT_MODEL, FAMILIES, WITHOUT_HEADS
from medusakit.errors import UsageError
from medusakit.tree.given import AUTO, DYNAMIC, STATIC, GivenTree

MAX_LEAVES = 16
MAX_WISHED = 256  # nodes and leaves that may be asked for
RUNTIMES = ("onnx", "torch")


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is asked of speculation; see `LLM.load`. tree: as `tree.given.checked` gives it."""

    drafter: str | None = None
    tree: GivenTree = AUTO
    budget: int | None = None
    dynamic: bool = True
    max_leaves: int = MAX_LEAVES
    breaker_rho: float | None = None
    draft_model: str | None = None

    @property
    def family(self) -> str | None:
        """Of heads, if one was asked for."""
        return self.drafter if self.drafter in FAMILIES else None

    @property
    def shaped(self) -> bool:
        """Whether the tree was given, by its shape or node by node."""
        return self.tree not in (AUTO, DYNAMIC, STATIC)

    @property
    def grown(self) -> bool:
        """Whether trees are to be grown anew at every step."""
        return self.tree == DYNAMIC or (self.tree == AUTO and self.dynamic)

    def check(self, heads: str) -> None:
        """Raises UsageError for a drafter that is none, for heads together with one that needs none, for a second model
        without its drafter or the other way round, and for numbers out of range."""
        known = (HYBRID, *FAMILIES, *WITHOUT_HEADS)
        if self.drafter not in (None, *known):
            raise UsageError(
                f"drafter {self.drafter!r} is not known; with heads: {', '.join(FAMILIES)}; without: "
                f"{', '.join(WITHOUT_HEADS)}; together: {HYBRID}",
                hint=f"--drafter {nearest(str(self.drafter), known) or HYBRID}",
            )
        if self.drafter in WITHOUT_HEADS and heads not in ("auto", "none"):
            raise UsageError(
                f"drafter {self.drafter} needs no heads, but {heads} was given", hint="leave out one of the two"
            )
        if (self.drafter == DRAFT_MODEL) != (self.draft_model is not None):
            raise UsageError(
                f"drafter {self.drafter}, draft model {self.draft_model}: one needs the other",
                hint=f"--drafter {DRAFT_MODEL} --draft-model MODEL   (a smaller one of the same vocabulary)",
            )
        self._check_numbers()

    def _check_numbers(self) -> None:
        for name, value in (("budget", self.budget), ("max_leaves", self.max_leaves)):
            whole = isinstance(value, int) and not isinstance(value, bool)
            if value is not None and not (whole and 1 <= value <= MAX_WISHED):
                message = f"{name} is {value!r}; expected a number of nodes from 1 to {MAX_WISHED}"
                raise UsageError(message, hint=f"{name}=8")
        rho = self.breaker_rho
        if rho is not None and not (isinstance(rho, int | float) and 0 <= rho <= 1):
            raise UsageError(f"breaker_rho is {rho!r}; expected a number from 0 to 1", hint="breaker_rho=0.85")


@dataclass(frozen=True, slots=True)
class RuntimeWishes:
    """What is asked of the runtime; see `LLM.load`. name: one of RUNTIMES."""

    name: str = "onnx"
    device_map: str | None = None
    weights: str = "auto"
    threads: int | None = None
    max_rows: int = 1
    max_context: int | None = None

    def check(self) -> None:
        """Raises UsageError for a runtime that is none, a device map that it does not take, numbers out of range."""
        if self.name not in RUNTIMES:
            hint = f"--runtime {nearest(self.name, RUNTIMES) or 'onnx'}"
            raise UsageError(f"runtime {self.name!r} is not known", hint=hint)
        if self.device_map is not None and self.name != "torch":
            raise UsageError(f"device map {self.device_map!r} needs the torch runtime", hint="--runtime torch")
        _at_least(1, "max_rows", self.max_rows)
        if self.threads is not None:
            _at_least(1, "threads", self.threads)
        if self.max_context is not None:
            _at_least(8, "max_context", self.max_context)


def _at_least(least: int, name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UsageError(f"{name} is {value!r}; expected a whole number, {least} or more", hint=f"{name}={least}")
