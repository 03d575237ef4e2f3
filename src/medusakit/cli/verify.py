"""`medusa verify`: the exactness audit of a model with its heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from medusakit.cli.app import App, current_app
from medusakit.cli.group import Command
from medusakit.cli.options import json_option, settings

if TYPE_CHECKING:
    from medusakit.bench.verify import VerifyProgress
    from medusakit.llm import LLM

AUDITED_BUDGET = 16


@click.command(cls=Command)
@settings("model", "heads", "drafter", "threads", "budget", "tree", "seed", "offline")
@click.option("--formats", default="f32,int8,int4", metavar="LIST", help="Weight formats. [f32,int8,int4]")
@click.option("--suite", default="mt-bench", metavar="NAME", help="Workload: a name or a JSONL file. [mt-bench]")
@click.option("--limit", type=click.IntRange(1), default=8, metavar="N", help="Questions answered greedily. [8]")
@click.option("--sampled", type=click.IntRange(0), default=4, metavar="N", help="Questions answered by sampling. [4]")
@click.option("--nodes", type=click.IntRange(1), default=400, metavar="N", help="Nodes compared one by one. [400]")
@click.option("--rows", type=click.IntRange(1, 64), default=8, metavar="N", help="Answers in progress at once. [8]")
@click.option("--max-tokens", "-n", type=click.IntRange(1), default=128, metavar="N", help="Of an answer. [128]")
@json_option
@click.pass_context
def verify(
    context: click.Context,
    formats: str,
    suite: str,
    limit: int,
    sampled: int,
    nodes: int,
    rows: int,
    max_tokens: int,
    json_file: str | None,
) -> None:
    """Compare every node of the verified trees with plain decoding, and whole answers token by token.

    \b
    medusa verify --formats f32 --limit 4
    medusa verify -m model.gguf --heads ./heads

    Exits with 4 if a format does not keep what it promises.
    """
    from medusakit.bench.verify import VerifyConfig, run_verify
    from medusakit.cli.bench import parse_formats
    from medusakit.cli.report import show_audit
    from medusakit.cli.stages import StageBars
    from medusakit.cli.ui import write_json
    from medusakit.train.progress import Progress

    app = current_app()
    seed = app.config.seed or 0
    names = parse_formats(formats)
    config = VerifyConfig(suite, limit, sampled, nodes, max_tokens, seed=seed, formats=names, rows=rows)
    with StageBars(app.ui) as bars:

        def on_progress(progress: VerifyProgress) -> None:
            stage = f"{progress.format} {progress.proof}"
            bars(Progress(stage, progress.done, progress.total, "nodes" if progress.proof == "nodes" else "turns"))

        document = run_verify(lambda weights: open_for_audit(app, weights, rows), config, on_progress)
    if json_file:
        write_json(app.ui, json_file, document)
    if json_file != "-":
        show_audit(app.ui, document)
    if not document["passed"]:
        context.exit(4)


def open_for_audit(app: App, weights: str, rows: int) -> LLM:
    """The model with heads and room for one row more; a tree of 16 nodes unless another was asked for, so that there
    is something to audit where speculation would not pay."""
    from medusakit.cli.trees import read_tree
    from medusakit.llm import LLM

    config, tree = app.config, read_tree(app.config.tree)
    with app.ui.status(f"loading {config.model} in {weights}"):
        return LLM.load(
            config.model,
            heads=config.heads,
            weights=weights,
            drafter=config.drafter,
            draft_model=config.draft_model,
            tree=tree,
            budget=config.budget or AUDITED_BUDGET,
            threads=config.threads,
            max_rows=rows + 1,
            offline=config.offline,
            align_position_embed=config.align_position_embed,
        )
