"""What the commands that measure share: the workload's request, a bar of turns, the document as it was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusakit.cli.app import App
from medusakit.errors import UsageError

if TYPE_CHECKING:
    from medusakit.cli.ui import Ui
    from medusakit.engine.wishes import Wishes
    from medusakit.settings import SamplingParams

OnTurns = Callable[[int, int, str], None]  # done, total, note


def workload_params(app: App, max_tokens: int) -> SamplingParams:
    """The request of every question: a fixed seed, and `max_tokens` unless a length was given.

    Raises UsageError for a system message: suites bring none, and figures with one would not be comparable.
    """
    if app.config.system:
        raise UsageError("the bench adds no system message to the model's own template", hint="leave out --system")
    params = app.sampling()
    if app.resolved.origins["max_tokens"].source == "default":
        params = replace(params, max_tokens=max_tokens)
    return replace(params, seed=params.seed or 0)


def wishes(app: App) -> Wishes:
    """What `App.load` asks of speculation."""
    from medusakit.cli.trees import read_tree
    from medusakit.engine.wishes import Wishes

    config, tree = app.config, read_tree(app.config.tree)
    return Wishes(config.drafter, tree, config.budget, config.dynamic_tree, config.max_leaves, config.breaker_rho)


@contextmanager
def turn_bar(app: App, stage: str) -> Iterator[OnTurns]:
    """A bar of turns; gives what moves it."""
    from medusakit.cli.stages import StageBars
    from medusakit.train.progress import Meter

    with StageBars(app.ui) as bars:
        meter = Meter(stage, 0, bars, unit="turns")

        def on_turns(done: int, total: int, note: str) -> None:
            meter.total = total
            meter.report(done, note)

        yield on_turns


def deliver(
    app: App,
    document: dict[str, Any],
    show: Callable[[Ui, dict[str, Any]], None],
    json_file: str | None,
    plots: Path | None,
) -> None:
    """The document as asked for: JSON, pictures, tables."""
    from medusakit.cli.ui import write_json

    if json_file:
        write_json(app.ui, json_file, document)
    if plots:
        from medusakit.bench.plots import write_plots

        for file in write_plots(document, plots):
            app.ui.note(f"wrote {file}")
    if json_file != "-":
        show(app.ui, document)


def numbers(text: str, flag: str, *, low: int) -> tuple[int, ...]:
    """`2,3,4` as whole numbers in rising order, each once. Raises UsageError that names the flag and the value."""
    found = {part: int(part) if part.isdecimal() else low - 1 for part in _parts(text)}
    for part, value in found.items():
        if value < low:
            hint = f"{flag} {low},{low + 1}"
            raise UsageError(f"{flag}: {part!r}; expected whole numbers from {low} up", hint=hint)
    return tuple(sorted(set(found.values())))


def shares(text: str, flag: str) -> tuple[float, ...]:
    """`0.1,0.5` as numbers from 0 up in rising order, each once. Raises UsageError, as `numbers`."""
    found = set()
    for part in _parts(text):
        with suppress(ValueError):
            if 0 <= float(part) < float("inf"):
                found.add(float(part))
                continue
        raise UsageError(f"{flag}: {part!r}; expected numbers from 0 up", hint=f"{flag} 0.1,0.3,1")
    return tuple(sorted(found))


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
