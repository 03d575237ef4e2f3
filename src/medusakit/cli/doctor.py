"""`medusa doctor`: is everything here that fast answers need, and if not, what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict

import click

from medusakit.cli.app import App, current_app
from medusakit.cli.checks import Finding
from medusakit.cli.group import Command
from medusakit.cli.options import MODEL, json_option, settings

MARKS = {"ok": "ok", "warning": "!", "error": "x"}


@click.command(cls=Command)
@settings(*MODEL)
@json_option
@click.pass_context
def doctor(context: click.Context, json_file: str | None) -> None:
    """Check versions, processor, memory, cache, the model and its heads. Exits with 4 if something cannot work."""
    from medusakit.cli.ui import write_json

    app = current_app()
    findings = list(examine(app))
    if json_file:
        write_json(app.ui, json_file, {"findings": [asdict(finding) for finding in findings]})
    if json_file != "-":
        _show(app, findings)
    if any(finding.severity == "error" for finding in findings):
        context.exit(4)


def examine(app: App) -> Iterator[Finding]:
    """Every check on this machine, for the model and heads that the settings name."""
    from medusakit.cli import checks
    from medusakit.cli.probe import read_machine, versions
    from medusakit.models.home import home
    from medusakit.runtimes.onnx.inventory import built_graphs

    machine, config = read_machine(), app.config
    yield checks.check_packages(versions())
    yield checks.check_processor(machine)
    yield checks.check_cores(machine, config.threads)
    yield checks.check_threads(os.environ, machine.cores)
    yield checks.check_memory(machine, checks.weight_bytes(config))
    yield from checks.check_cache(home())
    yield checks.check_graphs(built_graphs())
    yield checks.check_variables(os.environ)
    yield from checks.check_model(config)


def _show(app: App, findings: list[Finding]) -> None:
    rows = [(MARKS[finding.severity], finding.code, finding.message) for finding in findings]
    app.ui.table("", ("", "check", "finding"), rows, text=3)
    for finding in findings:
        if finding.remedy:
            app.ui.line(f"{finding.severity}: {finding.code}", "bad" if finding.severity == "error" else "warning")
            app.ui.line(f"  try: {finding.remedy}")
    bad = sum(finding.severity != "ok" for finding in findings)
    app.ui.line(f"{len(findings)} checks, {bad} to look at" if bad else f"{len(findings)} checks, all well")
