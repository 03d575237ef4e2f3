"""`medusa compare`: the same prompts answered plainly and with heads, side by side, with the measured speed-up."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from medusakit.cli.app import App, current_app
from medusakit.cli.group import Command
from medusakit.cli.options import MODEL, SAMPLING, SPECULATION, json_option, settings

if TYPE_CHECKING:
    from medusakit.cli.pairing import Pair
    from medusakit.llm import LLM

MAX_TOKENS = 128


@click.command(cls=Command)
@click.argument("prompts", nargs=-1)
@settings(*MODEL, *SAMPLING, *SPECULATION, "highlight")
@click.option("--repeat", metavar="N", type=click.IntRange(1, 100), default=1, help="Rounds over the prompts. [1]")
@json_option
def compare(prompts: tuple[str, ...], repeat: int, json_file: str | None) -> None:
    """Answer PROMPTS plainly and with heads, turn by turn, and compare tokens and speed.

    Both run in one process through the same kernels; which goes first alternates.
    """
    from medusakit.cli.prompt import read_prompt
    from medusakit.cli.ui import write_json

    app = current_app()
    texts = prompts or (read_prompt(None),)
    llm = app.load()
    pairs = run_pairs(app, llm, texts, repeat, shown=json_file != "-")
    document = summarise(app, llm, pairs)
    if json_file:
        write_json(app.ui, json_file, document)
    if json_file != "-":
        show_table(app, document)


def run_pairs(app: App, llm: LLM, prompts: tuple[str, ...], repeat: int, *, shown: bool) -> list[Pair]:
    """Every prompt both ways, `repeat` rounds; the first round's answers are shown."""
    from medusakit.cli.pairing import Pair

    params = app.sampling()
    if "max_tokens" not in app.flags and app.resolved.origins["max_tokens"].source == "default":
        params = replace(params, max_tokens=MAX_TOKENS)
    if params.seed is None:
        params = replace(params, seed=0)
    pairs = []
    for turn, prompt in enumerate(prompts * repeat):
        message: str | list[dict[str, str]] = prompt
        if app.config.system:
            message = [{"role": "system", "content": app.config.system}, {"role": "user", "content": prompt}]
        order = (False, True) if turn % 2 == 0 else (True, False)
        with app.ui.status(f"{turn + 1}/{len(prompts) * repeat} {prompt[:60]}"):
            results = {way: llm.generate(message, params, speculation=way) for way in order}
        pairs.append(Pair(prompt, results[False], results[True]))
        if shown and turn < len(prompts):
            show_pair(app, pairs[-1])
    return pairs


def show_pair(app: App, pair: Pair) -> None:
    """Two columns: plain on the left, Medusa with its accepted tokens marked on the right."""
    from rich.table import Table
    from rich.text import Text

    from medusakit.cli.answer import token_style

    highlight = "accepted" if app.config.highlight == "auto" else app.config.highlight
    table = Table(title=pair.prompt, title_justify="left", title_style="head", expand=True)
    for name, result in (("plain", pair.plain), ("Medusa", pair.medusa)):
        table.add_column(f"{name}  {result.stats.tokens_per_s:.1f} tok/s", ratio=1, overflow="fold")
    marked = Text()
    for event in pair.medusa.events:
        marked.append(app.ui.safe(event.text), token_style(event, highlight))
    table.add_row(Text(app.ui.safe(pair.plain.text)), marked)
    app.ui.show(table)


def summarise(app: App, llm: LLM, pairs: list[Pair]) -> dict[str, Any]:
    """The document of --json; the keys are those of `bench offline`."""
    from medusakit.cli import document
    from medusakit.cli.pairing import MEDUSA, PLAIN, first_difference, mode_summary, speedup

    differences = [found for pair in pairs if (found := first_difference(pair))]
    equality = {
        "turns": len(pairs),
        "equal": len(pairs) - len(differences),
        "tied": 0,
        "first_differences": [asdict(difference) for difference in differences],
    }
    return {
        "modes": {
            PLAIN: mode_summary([pair.plain for pair in pairs]),
            MEDUSA: mode_summary([pair.medusa for pair in pairs]),
        },
        "speedup": {f"{MEDUSA}/{PLAIN}": speedup(pairs) | {"by_category": {}}},
        "identical": {f"{MEDUSA}=={PLAIN}": equality},
        "weights": llm.runtime.capabilities.weights,
        "model": document.model(llm),
        "seed": pairs[0].medusa.seed,
        "lossless": all(pair.medusa.lossless for pair in pairs),
    } | document.circumstances(app.config)


def show_table(app: App, document: dict[str, Any]) -> None:
    """Figures of both ways, the ratio, and whether the answers agree."""
    columns = ("", "tokens", "tok/s", "tau", "nodes/step", "forward", "draft", "other")
    app.ui.table("", columns, [_row(name, mode) for name, mode in document["modes"].items()])
    (ratio,) = document["speedup"].values()
    (same,) = document["identical"].values()
    low, high = ratio["ci95"]
    depths = "/".join(f"{100 * share:.0f}" for share in document["modes"]["medusa"]["accepted_by_depth"])
    app.ui.line(f"accepted by depth: {depths} %" if depths else "nothing was drafted")
    interval = f" (95 % interval over prompts {low:.2f} to {high:.2f})" if low != high else ""
    app.ui.line(f"speed-up {ratio['ratio']:.2f}x with {document['weights']} weights{interval}", "head")
    if not document["lossless"]:
        app.ui.line("typical acceptance is lossy: answers may differ", "warning")
    verdict = f"{same['equal']} of {same['turns']} answers have the same tokens"
    app.ui.line(verdict, "good" if same["equal"] == same["turns"] else "bad")


def _row(name: str, mode: dict[str, Any]) -> list[str]:
    split = mode["time_split"]
    shares = [f"{100 * split[part]:.0f} %" for part in ("forward", "draft", "other")]
    return [
        name,
        str(mode["tokens"]),
        f"{mode['tokens_per_s']:.1f}",
        f"{mode['tau']:.2f}",
        f"{mode['nodes_per_step']:.1f}",
        *shares,
    ]
