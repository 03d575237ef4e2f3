"""`medusa bench drafters` and `medusa bench grid`: what drafts best, and which tree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from medusakit.cli.app import current_app
from medusakit.cli.group import Command, Decorated
from medusakit.cli.measured import deliver, numbers, shares, turn_bar, workload_params
from medusakit.cli.options import MODEL, SAMPLING, json_option, plots_option, settings

LIMIT, MAX_TOKENS = 8, 128


def workload(command: Decorated) -> Decorated:
    """--suite and --limit of commands that run many entries over the same questions."""
    limit = click.option("--limit", type=click.IntRange(1), default=LIMIT, metavar="N", help=f"Questions. [{LIMIT}]")
    suite = click.option("--suite", default="mt-bench", metavar="NAME", help="Name or JSONL file. [mt-bench]")
    return suite(limit(command))


@click.command(cls=Command)
@click.argument("folders", nargs=-1)
@settings(*MODEL, *SAMPLING, "budget", max_tokens=MAX_TOKENS)
@workload
@click.option("--only", multiple=True, metavar="NAME", help="Only this drafter, and the folders; may be repeated.")
@click.option("--degrade", default="", metavar="LIST", help="Noise on the heads in use as well, e.g. 0.1,0.3,1.")
@plots_option
@json_option
def drafters(
    folders: tuple[str, ...],
    suite: str,
    limit: int,
    only: tuple[str, ...],
    degrade: str,
    plots: Path | None,
    json_file: str | None,
) -> None:
    """One table of all drafters that work with the model, and of heads in FOLDERS: size, draft time, tau, speed-up.

    All answer the same questions, interleaved with plain decoding in one process. With --budget every drafter gets as
    many nodes; without, each takes what is expected to pay, as decoding does. A second model is among them where
    --drafter draft_model --draft-model MODEL names one.
    """
    from medusakit.bench.contest import ContestConfig
    from medusakit.bench.drafters import DraftersConfig, run_drafters
    from medusakit.cli.report_drafting import show_drafters

    app = current_app()
    strengths = shares(degrade, "--degrade")
    params = workload_params(app, MAX_TOKENS)
    contest = ContestConfig(suite, limit, params, params.seed or 0)
    config = DraftersConfig(contest, folders, only, strengths, app.config.budget, app.config.threads)
    llm = app.load()
    with turn_bar(app, "drafters") as on_turns:
        document = run_drafters(llm, config, on_turns)
    deliver(app, document, show_drafters, json_file, plots)


def _list(flag: str, default: str, what: str) -> Callable[[Decorated], Decorated]:
    return click.option(flag, default=default, metavar="LIST", help=f"{what} [{default}]")


@click.command(cls=Command)
@settings(*MODEL, *SAMPLING, max_tokens=MAX_TOKENS)
@workload
@_list("--depths", "2,3,4", "Depths D of the dense trees.")
@_list("--branchings", "2,3,4", "Children B under every node of them.")
@_list("--budgets", "2,3,4,6,8,12,16,24,32", "Nodes of calibrated and of grown trees.")
@click.option("--write", is_flag=True, help="Make the winner what the heads recommend; needs --heads FOLDER.")
@plots_option
@json_option
def grid(
    suite: str,
    limit: int,
    depths: str,
    branchings: str,
    budgets: str,
    write: bool,
    plots: Path | None,
    json_file: str | None,
) -> None:
    """Run dense D x B trees, and calibrated and grown trees at several budgets: what each gives against what it costs.

    With --write the fastest becomes what the heads recommend: it counts where no flag, variable or configuration file
    says otherwise.
    """
    from medusakit.bench.contest import ContestConfig
    from medusakit.bench.grid import GridConfig, check_writable, run_grid, write_winner
    from medusakit.cli.report_drafting import show_grid

    app = current_app()
    if write:
        check_writable(app.config.heads)
    params = workload_params(app, MAX_TOKENS)
    config = GridConfig(
        ContestConfig(suite, limit, params, params.seed or 0),
        numbers(depths, "--depths", low=1),
        numbers(branchings, "--branchings", low=1),
        numbers(budgets, "--budgets", low=2),
        app.config.drafter,
        app.config.threads,
    )
    llm = app.load()
    with turn_bar(app, "grid") as on_turns:
        document = run_grid(llm, config, on_turns)
    if write and llm.parts.artifact is not None:
        document["written"] = write_winner(llm.parts.artifact, document)
    deliver(app, document, show_grid, json_file, plots)
