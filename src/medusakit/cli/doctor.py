"""`medusa doctor`: is everything here that fast answers need, and if not, what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from medusakit.cli.app import App, current_app
from medusakit.cli.group import Command
from medusakit.cli.options import MODEL, json_option, settings

if TYPE_CHECKING:
    from medusakit.diagnosis.findings import Finding

MARKS = {"info": "ok", "warning": "!", "error": "x"}


@click.command(cls=Command)
@click.option(
    "--artifact",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Examine these heads on the model by numeric tests, and name what is wrong with them.",
)
@settings(*MODEL)
@json_option
@click.pass_context
def doctor(context: click.Context, artifact: Path | None, json_file: str | None) -> None:
    """Check versions, processor, memory, cache, the model and its heads. Exits with 4 if something cannot work.

    \b
    medusa doctor --artifact ./heads -m MODEL

    lets the model answer a few prompts and compares what the heads guess with what it says: wrong side of the norm,
    heads off by one, missing biases, untrained or tied blocks, another vocabulary, tokenizer, revision or rope, and
    what the weights' format costs.
    """
    from medusakit.cli.ui import write_json

    app = current_app()
    findings = list(examine(app)) if artifact is None else examine_artifact(app, artifact)
    if json_file:
        write_json(app.ui, json_file, {"findings": [asdict(finding) for finding in findings]})
    if json_file != "-":
        _show(app, findings)
    if any(finding.severity == "error" for finding in findings):
        context.exit(4)


def examine(app: App) -> Iterator[Finding]:
    """Every check on this machine, for the model and heads that the settings name."""
    from onnxruntime import get_available_providers

    from medusakit.cli import checks, precision
    from medusakit.cli.probe import read_machine, versions
    from medusakit.models.home import home
    from medusakit.runtimes.onnx.inventory import built_graphs

    machine, config = read_machine(), app.config
    yield checks.check_packages(versions())
    yield checks.check_processor(machine)
    yield checks.check_cores(machine, config.threads)
    yield checks.check_threads(os.environ, machine.cores)
    yield precision.check_device(get_available_providers(), precision.gpu_devices())
    if config.runtime == "torch":
        yield _torch_finding(config.device_map)
    yield precision.check_blas(precision.blas_name())
    yield precision.check_precision(os.environ)
    yield checks.check_memory(machine, checks.weight_bytes(config))
    yield from checks.check_cache(home())
    yield checks.check_graphs(built_graphs())
    yield checks.check_variables(os.environ)
    yield from checks.check_model(config)


def _torch_finding(device_map: str | None) -> Finding:
    from medusakit.cli.precision import check_torch
    from medusakit.diagnosis.findings import Finding

    try:
        from medusakit.runtimes.torch.device.facts import torch_facts
    except ImportError as error:
        return Finding("torch", "error", f"{error.name} is not installed", "pip install 'medusakit[torch]'")
    return check_torch(torch_facts(), device_map)


def examine_artifact(app: App, folder: Path) -> list[Finding]:
    """What is wrong with the heads in `folder` on the model that the settings name."""
    from medusakit.diagnosis.opening import examine_heads

    config = app.config
    with app.ui.status(f"{config.model} answers, the heads of {folder} guess"):
        return examine_heads(
            folder,
            config.model,
            weights=config.weights,
            threads=config.threads,
            offline=config.offline,
            align=config.align_position_embed,
        )


def _show(app: App, findings: list[Finding]) -> None:
    rows = [(MARKS[finding.severity], finding.code, finding.evidence) for finding in findings]
    app.ui.table("", ("", "check", "finding"), rows, text=3)
    for finding in findings:
        if finding.remedy:
            app.ui.line(f"{finding.severity}: {finding.code}", "bad" if finding.severity == "error" else "warning")
            app.ui.line(f"  try: {finding.remedy}")
    bad = sum(finding.severity != "info" for finding in findings)
    checked = f"{len(findings)} check{'s' if len(findings) != 1 else ''}"
    app.ui.line(f"{checked}, {bad} to look at" if bad else f"{checked}, all well")
