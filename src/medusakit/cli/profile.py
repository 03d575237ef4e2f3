"""`medusa profile`: how long requests are and how many come, and the settings that suit them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from medusakit.cli.app import App, current_app
from medusakit.cli.group import Command
from medusakit.cli.options import MODEL, json_option, settings
from medusakit.errors import UsageError

if TYPE_CHECKING:
    from medusakit.bench.profile import Profile


@click.command(cls=Command)
@click.argument("logs", nargs=-1, type=click.Path(path_type=Path))
@settings(*MODEL)
@click.option("--url", metavar="URL", help="A running server; its /metrics is read instead of a log.")
@click.option("--lengths-only", is_flag=True, help="Load no model: no budget, and no row count from rates alone.")
@json_option
def profile(logs: tuple[Path, ...], url: str | None, lengths_only: bool, json_file: str | None) -> None:
    """Lengths and load of the requests in LOGS or on a server (P50 and P95), and a configuration for them.

    A log has one JSON object a line: {"prompt_tokens": 120, "output_tokens": 48}, best with "timestamp" (seconds) and
    "duration_s"; or OpenAI-style answers with "usage"; or what `medusa run --json` writes.
    """
    from medusakit.bench.profile import document, suggest
    from medusakit.cli.report_drafting import show_profile
    from medusakit.cli.ui import write_json

    app = current_app()
    found = _read(logs, url)
    llm = None if lengths_only else app.load()
    report = document(found, suggest(found, llm), [url] if url else [str(log) for log in logs])
    if json_file:
        write_json(app.ui, json_file, report)
    if json_file != "-":
        show_profile(app.ui, report)
    _advise(app, found)


def _read(logs: tuple[Path, ...], url: str | None) -> Profile:
    from medusakit.bench.profile import profile_metrics, profile_requests
    from medusakit.bench.prometheus import fetch_metrics
    from medusakit.bench.requests import read_requests

    if bool(logs) == bool(url):
        what = "give logs or --url, not both" if url else "no requests to look at: give a log, or a server"
        raise UsageError(what, hint="medusa profile requests.jsonl, or: medusa profile --url http://localhost:8000")
    if url:
        return profile_metrics(fetch_metrics(url), time.time())
    return profile_requests([request for log in logs for request in read_requests(log)])


def _advise(app: App, found: Profile) -> None:
    if found.load.rate_per_s is None:
        app.ui.note("no times in it, so the load is not known: the budget is that of one request at a time")
