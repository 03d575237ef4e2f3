"""`medusa bench`: speed on a workload, and the machine itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from medusakit.cli.app import App, current_app
from medusakit.cli.drafting import drafters, grid
from medusakit.cli.group import Group
from medusakit.cli.load import bench_serve
from medusakit.cli.measured import deliver, turn_bar, wishes, workload_params
from medusakit.cli.options import MODEL, SAMPLING, SPECULATION, json_option, plots_option, settings
from medusakit.errors import UsageError

if TYPE_CHECKING:
    from medusakit.bench.offline import OfflineProgress
    from medusakit.runtimes.base import Runtime

FORMATS = ("f32", "int8", "int4")
MAX_TOKENS = 256


@click.group(cls=Group)
def bench() -> None:
    """Measure: answers of a workload in several modes, drafters and trees, or the machine."""


@bench.command()
@settings(*MODEL, *SAMPLING, *SPECULATION, max_tokens=MAX_TOKENS)
@click.option(
    "--suite", default="mt-bench", metavar="NAME", help="mt-bench, spec-bench, adversarial, or a JSONL file. [mt-bench]"
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Questions, spread over categories; all if unset.")
@click.option("--modes", default="plain,medusa", metavar="LIST", help="Of plain, medusa, hf. [plain,medusa]")
@plots_option
@json_option
def offline(suite: str, limit: int | None, modes: str, plots: Path | None, json_file: str | None) -> None:
    """Answer a workload in several modes, interleaved question by question in one process.

    \b
    medusa bench offline --suite mt-bench --limit 16 --modes plain,medusa
    """
    from medusakit.bench.offline import OfflineConfig, run_offline
    from medusakit.cli.report import show_comparison

    app = current_app()
    params = workload_params(app, MAX_TOKENS)
    names = tuple(name.strip() for name in modes.split(",") if name.strip())
    config = OfflineConfig(suite, limit, names, params, app.config.threads, params.seed or 0, wishes(app))
    llm = app.load()
    with turn_bar(app, "offline") as on_turns:

        def on_progress(progress: OfflineProgress) -> None:
            on_turns(progress.done, progress.total, _speeds(progress))

        document = run_offline(llm, config, on_progress)
    deliver(app, document, show_comparison, json_file, plots)


@bench.command()
@settings("model", "threads", "offline")
@click.option("--formats", default=",".join(FORMATS), metavar="LIST", help="Weight formats. [f32,int8,int4]")
@click.option("--context", type=click.IntRange(8), default=256, metavar="N", help="Positions in the cache. [256]")
@plots_option
@json_option
def hardware(formats: str, context: int, plots: Path | None, json_file: str | None) -> None:
    """Measure memory bandwidth, matrix products, and one pass over n nodes against what the machine allows."""
    from medusakit.bench.hardware import run_hardware
    from medusakit.cli.report import show_hardware

    app = current_app()
    names = parse_formats(formats)
    document = run_hardware(
        lambda weights: open_runtime(app, weights, context),
        formats=names,
        threads=app.config.threads,
        context=context,
        on_progress=app.ui.note,
    )
    deliver(app, document, show_hardware, json_file, plots)


bench.add_command(drafters)
bench.add_command(grid)
bench.add_command(bench_serve)


def parse_formats(text: str) -> tuple[str, ...]:
    """`f32,int4` as names. Raises UsageError for one that does not exist."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in FORMATS:
            raise UsageError(f"--formats: {name!r} is not one of {', '.join(FORMATS)}", hint=f"--formats {FORMATS[0]}")
    return names or FORMATS


def open_runtime(app: App, weights: str, context: int) -> Runtime:
    """The configured model in one weight format, with room for the largest measured tree."""
    from medusakit.models.resolve import open_weights, resolve
    from medusakit.runtimes.onnx.runtime import load_onnx

    source = open_weights(resolve(app.config.model, offline=app.config.offline))
    return load_onnx(source, weights=weights, threads=app.config.threads, max_context=context + 64)


def _speeds(progress: OfflineProgress) -> str:
    return ", ".join(f"{name} {speed:.1f} tok/s" for name, speed in progress.tokens_per_s.items())
