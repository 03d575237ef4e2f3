"""`medusa bench serve`: load on a server that is running."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from medusakit.cli.app import current_app
from medusakit.cli.group import Command
from medusakit.cli.measured import deliver, turn_bar
from medusakit.cli.options import json_option, settings
from medusakit.errors import UsageError

if TYPE_CHECKING:
    from medusakit.cli.ui import Ui

MAX_TOKENS = 128


@click.command("serve", cls=Command)
@settings("model", "max_tokens", "temperature", max_tokens=MAX_TOKENS)
@click.option("--url", default="http://127.0.0.1:8642", metavar="URL", help="Server. [http://127.0.0.1:8642]")
@click.option("--concurrency", default="1,4,16", metavar="LIST", help="Requests at once, one point each. [1,4,16]")
@click.option("--requests", type=click.IntRange(1), default=16, metavar="N", help="Requests of a point. [16]")
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="X", help="Arrivals a second, at random.")
@click.option("--suite", default="mt-bench", metavar="NAME", help="mt-bench, spec-bench or a JSONL file. [mt-bench]")
@click.option("--slo", metavar="TTFT,TPOT", help="Milliseconds that a request must keep to count as good.")
@json_option
def bench_serve(
    url: str, concurrency: str, requests: int, rate: float | None, suite: str, slo: str | None, json_file: str | None
) -> None:
    """Load a server that speaks OpenAI's API: times to the first token and between tokens, throughput, errors.

    The key, if the server wants one, is that of MEDUSA_API_KEY. Run it again beside `medusa serve --no-speculation` to
    see at which concurrency speculation stops paying.
    """
    from medusakit.bench.circumstances import machine, versions
    from medusakit.bench.load import LoadConfig, run_load
    from medusakit.bench.workloads import load_suite

    app = current_app()
    given = app.resolved.origins["max_tokens"].source != "default"
    limits = _numbers(slo, "--slo") if slo else None
    if limits is not None and len(limits) != 2:
        raise UsageError(f"--slo {slo} is not two numbers", hint="--slo 500,50")
    config = LoadConfig(
        url=url,
        model=app.config.model,
        concurrency=tuple(max(1, int(number)) for number in _numbers(concurrency, "--concurrency")),
        num_requests=requests,
        rate=rate,
        max_tokens=app.config.max_tokens if given else MAX_TOKENS,
        temperature=app.config.temperature,
        api_key=os.environ.get("MEDUSA_API_KEY", ""),
        slo_ms=None if limits is None else (limits[0], limits[1]),
    )
    prompts = [question.turns[0] for question in load_suite(suite)]
    with turn_bar(app, "serve") as on_turns:
        document = run_load(config, prompts, on_turns)
    deliver(app, document | {"machine": machine(), "versions": versions()}, show_load, json_file, None)


def show_load(ui: Ui, document: dict[str, Any]) -> None:
    columns = ("at once", "requests", "errors", "tok/s", "tok/step", "TTFT p50", "p95", "TPOT p50", "p95", "E2E p50")
    rows = []
    for point in document["points"]:
        times = [point[name][share] for name in ("ttft_ms", "tpot_ms") for share in ("p50", "p95")]
        numbers = [point["tokens_per_s"], point["tokens_per_step"], *times, point["e2e_ms"]["p50"]]
        shown = ["-" if value is None else f"{value:.1f}" for value in numbers]
        shown[1] = "-" if point["tokens_per_step"] is None else f"{point['tokens_per_step']:.2f}"
        rows.append((point["concurrency"], point["requests"], point["errors"], *shown))
    ui.table("", columns, rows, text=0)
    ui.note("  times in ms; TPOT is per token after the first, over whole answers")


def _numbers(text: str, flag: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{flag} {text!r} is not a list of numbers", hint="--concurrency 1,4,16") from None
