"""`medusa bench serve`: load on a server that is running."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from medusakit.cli.app import App, current_app
from medusakit.cli.group import Command
from medusakit.cli.measured import OnTurns, deliver, numbers, turn_bar
from medusakit.cli.options import json_option, plots_option, settings
from medusakit.errors import UsageError

if TYPE_CHECKING:
    from medusakit.bench.load import LoadConfig
    from medusakit.cli.ui import Ui

MAX_TOKENS = 128
_REQUESTS = "Requests of a point; at least as many as at once. [16]"
_FILES = "Ask nobody: compare two earlier --json FILEs."


@click.command("serve", cls=Command)
@settings("model", "max_tokens", "temperature", max_tokens=MAX_TOKENS)
@click.option("--url", default="http://127.0.0.1:8642", metavar="URL", help="Server. [http://127.0.0.1:8642]")
@click.option("--concurrency", default="1,4,16", metavar="LIST", help="Requests at once, one point each. [1,4,16]")
@click.option("--requests", type=click.IntRange(1), default=16, metavar="N", help=_REQUESTS)
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="X", help="Arrivals a second, at random.")
@click.option("--suite", default="mt-bench", metavar="NAME", help="mt-bench, spec-bench or a JSONL file. [mt-bench]")
@click.option("--slo", metavar="TTFT,TPOT", help="Milliseconds that a request must keep to count as good.")
@click.option("--toggle", is_flag=True, help="Compare with plain decoding: the server is switched between rounds.")
@click.option("--against", metavar="URL", help="Compare with this server, the same with --no-speculation.")
@click.option("--rounds", type=click.IntRange(2), default=4, metavar="N", help="Turns of each side at a point. [4]")
@click.option("--samples", type=click.IntRange(0), default=0, metavar="N", help="Answers kept in the JSON. [0]")
@click.option("--files", nargs=2, type=click.Path(exists=True), metavar="SPECULATION PLAIN", help=_FILES)
@plots_option
@json_option
def bench_serve(
    url: str,
    concurrency: str,
    requests: int,
    rate: float | None,
    suite: str,
    slo: str | None,
    toggle: bool,
    against: str | None,
    rounds: int,
    samples: int,
    files: tuple[str, str] | None,
    plots: Path | None,
    json_file: str | None,
) -> None:
    """Load a server that speaks OpenAI's API: times to the first token and between tokens, throughput, errors.

    \b
    medusa serve -m smollm2
    medusa bench serve --url http://127.0.0.1:8642 --requests 32

    With --toggle or --against it is compared with plain decoding, in turns, and the concurrency at which speculation
    stops paying is told. The key, if the server wants one, is that of MEDUSA_API_KEY (--toggle needs an admin's).
    """
    from medusakit.bench.circumstances import machine, versions

    app = current_app()
    if toggle and against:
        raise UsageError("--toggle and --against exclude each other", hint="--toggle")
    if files:
        return deliver(app, _joined(*files), show_load, json_file, plots)
    config = _config(app, url, concurrency, requests, rate, slo)
    with turn_bar(app, "serve") as on_turns:
        document = _measure(config, suite, toggle or against is not None, against, rounds, samples, on_turns)
    deliver(app, document | {"machine": machine(), "versions": versions()}, show_load, json_file, plots)


def _config(app: App, url: str, concurrency: str, requests: int, rate: float | None, slo: str | None) -> LoadConfig:
    from medusakit.bench.load import LoadConfig

    given = app.resolved.origins["max_tokens"].source != "default"
    limits = _numbers(slo, "--slo") if slo else None
    if limits is not None and len(limits) != 2:
        raise UsageError(f"--slo {slo} is not two numbers", hint="--slo 500,50")
    return LoadConfig(
        url=url,
        model=app.config.model,
        concurrency=numbers(concurrency, "--concurrency", low=1),
        num_requests=requests,
        rate=rate,
        max_tokens=app.config.max_tokens if given else MAX_TOKENS,
        temperature=app.config.temperature,
        api_key=os.environ.get("MEDUSA_API_KEY", ""),
        slo_ms=None if limits is None else (limits[0], limits[1]),
    )


def _measure(
    config: LoadConfig,
    suite: str,
    compared: bool,
    against: str | None,
    rounds: int,
    samples: int,
    on_turns: OnTurns,
) -> dict[str, Any]:
    from medusakit.bench.load import run_load
    from medusakit.bench.versus import run_versus
    from medusakit.bench.workloads import load_suite

    prompts = [question.turns[0] for question in load_suite(suite)]
    if not compared:
        return run_load(config, prompts, on_turns, num_samples=samples)
    return run_versus(config, prompts, against=against, num_rounds=rounds, num_samples=samples, on_request=on_turns)


def _joined(speculation: str, plain: str) -> dict[str, Any]:
    """Two documents of this command as one."""
    from medusakit.bench.versus import joined

    found = []
    for name in (speculation, plain):
        try:
            document = json.loads(Path(name).read_text(encoding="utf-8"))
            assert document["bench"] == "serve" and document["points"]
        except (OSError, ValueError, KeyError, TypeError, AssertionError):
            hint = "medusa bench serve --json FILE"
            raise UsageError(f"{name} is no document of medusa bench serve", hint=hint) from None
        found.append(document)
    return joined(*found)


def show_load(ui: Ui, document: dict[str, Any]) -> None:
    columns = ("at once", "requests", "errors", "tok/s", "tok/step", "TTFT p50", "p95", "TPOT p50", "p95", "E2E p50")
    points = document["points"]
    ui.table("", columns, [_row(point) for point in points], text=0)
    ui.note("  times in ms; TPOT is per token after the first, over whole answers")
    if "plain" in points[0]:
        ui.table("plain decoding", columns, [_row(point["plain"]) for point in points], text=0)
        ui.table("speculation over plain", ("at once", "measured", "95 %", "predicted"), map(_ratio, points), text=0)
        ui.line(verdict(document), "head")


def verdict(document: dict[str, Any]) -> str:
    """Where speculation stops paying, in a sentence."""
    found, points = document["stops_paying"], document["points"]
    if found is None:
        return f"Speculation pays at every concurrency measured, up to {points[-1]['concurrency']}."
    doubt = "" if found["certain"] else " (not certain: no interval lies under 1)"
    if found["pays_at"] is None:
        return f"Speculation does not pay even at {found['concurrency']} at once{doubt}."
    return f"Speculation stops paying between {found['pays_at']} and {found['concurrency']} requests at once{doubt}."


def _row(point: dict[str, Any]) -> tuple[Any, ...]:
    times = [point[name][share] for name in ("ttft_ms", "tpot_ms") for share in ("p50", "p95")]
    numbers = [point["tokens_per_s"], point["tokens_per_step"], *times, point["e2e_ms"]["p50"]]
    shown = ["-" if value is None else f"{value:.1f}" for value in numbers]
    shown[1] = "-" if point["tokens_per_step"] is None else f"{point['tokens_per_step']:.2f}"
    return (point["concurrency"], point["requests"], point["errors"], *shown)


def _ratio(point: dict[str, Any]) -> tuple[Any, ...]:
    span, told = point.get("ratio_ci95"), point.get("predicted")
    interval = "-" if span is None else f"{span[0]:.2f} - {span[1]:.2f}"
    return (point["concurrency"], f"{point['ratio']:.2f}", interval, f"{told['ratio']:.2f}" if told else "-")


def _numbers(text: str, flag: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{flag} {text!r} is not a list of numbers", hint="--slo 500,50") from None
