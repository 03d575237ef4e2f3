"""`medusa compare`: the same prompts answered plainly and with heads, side by side, with the measured speed-up."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import click

from medusakit.cli.app import App, current_app
from medusakit.cli.group import Command
from medusakit.cli.options import MODEL, SAMPLING, SPECULATION, json_option, settings
from medusakit.errors import ArtifactError

if TYPE_CHECKING:
    from medusakit.bench.equality import Difference
    from medusakit.bench.summary import Turn
    from medusakit.engine.events import GenerationResult
    from medusakit.llm import LLM
    from medusakit.settings import SamplingParams

MAX_TOKENS = 128
PLAIN, MEDUSA = "plain", "medusa"


@click.command(cls=Command)
@click.argument("prompts", nargs=-1)
@settings(*MODEL, *SAMPLING, *SPECULATION, "highlight", max_tokens=MAX_TOKENS)
@click.option("--repeat", metavar="N", type=click.IntRange(1, 100), default=1, help="Rounds over the prompts. [1]")
@json_option
def compare(prompts: tuple[str, ...], repeat: int, json_file: str | None) -> None:
    """Answer PROMPTS plainly and with drafts, one after the other, and compare tokens and speed.

    \b
    medusa compare "Explain a B-tree in two sentences"

    Both run in one process through the same kernels; which goes first alternates.
    """
    from medusakit.bench.offline import OfflineConfig, document
    from medusakit.cli.prompt import read_prompt
    from medusakit.cli.report import show_comparison
    from medusakit.cli.ui import write_json

    app = current_app()
    texts = prompts or (read_prompt(None, command="compare"),)
    llm = app.load()
    if llm.parts.speculation.drafter is None:
        hint = f"medusa train all -m {app.config.model} --out ./heads"
        raise ArtifactError(f"nothing to compare: {app.config.model} has no heads", hint=hint)
    params = request(app)
    comparison = Comparison(app, llm, params)
    comparison.run(texts, repeat, shown=json_file != "-")
    config = OfflineConfig(suite="prompts", params=params, seed=params.seed or 0)
    report = document(llm, config, comparison.turns, {f"{MEDUSA}=={PLAIN}": comparison.differences})
    report["config"]["prompts"] = list(texts)
    if json_file:
        write_json(app.ui, json_file, report)
    if json_file != "-":
        show_comparison(app.ui, report)


def request(app: App) -> SamplingParams:
    """The request of both ways: a fixed seed, and shorter answers unless a length was given."""
    params = app.sampling()
    if app.resolved.origins["max_tokens"].source == "default":
        params = replace(params, max_tokens=MAX_TOKENS)
    return params if params.seed is not None else replace(params, seed=0)


@dataclass(slots=True)
class Comparison:
    """Turns answered both ways so far."""

    app: App
    llm: LLM
    params: SamplingParams
    turns: list[Turn] = field(default_factory=list)
    differences: list[Difference | None] = field(default_factory=list)

    def run(self, prompts: tuple[str, ...], repeat: int, *, shown: bool) -> None:
        """Every prompt both ways, `repeat` rounds; the first round's answers are shown."""
        total = len(prompts) * repeat
        for turn, prompt in enumerate(prompts * repeat):
            with self.app.ui.status(f"{turn + 1}/{total} {prompt[:60]}"):
                results = self._answer(turn, turn % len(prompts), prompt)
            if shown and turn < len(prompts):
                show_pair(self.app, prompt, results)

    def _answer(self, turn: int, group: int, prompt: str) -> dict[str, GenerationResult]:
        from medusakit.bench.answers import Answer
        from medusakit.bench.equality import judge_difference
        from medusakit.bench.summary import Turn

        ids = self.llm.encode(messages(prompt, self.app.config.system))
        order = (PLAIN, MEDUSA) if turn % 2 == 0 else (MEDUSA, PLAIN)
        results = {way: self._generate(ids, speculation=way == MEDUSA) for way in order}
        where = f"prompt {group + 1}"
        answers = {way: Answer.of(results[way]) for way in (PLAIN, MEDUSA)}
        self.turns.append(Turn(where, "prompts", 0, answers))
        pair = (answers[PLAIN].token_ids, answers[MEDUSA].token_ids)
        self.differences.append(judge_difference(self.llm, where, ids, *pair, self.params))
        return results

    def _generate(self, ids: list[int], *, speculation: bool) -> GenerationResult:
        with self.llm.stream_ids(ids, self.params, speculation=speculation) as stream:
            for _ in stream:
                pass
            return stream.result


def messages(prompt: str, system: str | None) -> list[dict[str, str]]:
    """A prompt with the system message, if there is one."""
    head = [{"role": "system", "content": system}] if system else []
    return [*head, {"role": "user", "content": prompt}]


def show_pair(app: App, prompt: str, results: dict[str, Any]) -> None:
    """Two columns: plain on the left, Medusa with its accepted tokens marked on the right."""
    from rich.table import Table
    from rich.text import Text

    from medusakit.cli.answer import token_style

    highlight = "accepted" if app.config.highlight == "auto" else app.config.highlight
    plain, medusa = results[PLAIN], results[MEDUSA]
    table = Table(title=app.ui.safe(prompt), title_justify="left", title_style="head", expand=True)
    for name, result in (("plain", plain), ("Medusa", medusa)):
        table.add_column(f"{name}  {result.stats.tokens_per_s:.1f} tok/s", ratio=1, overflow="fold")
    marked = Text()
    for event in medusa.events:
        marked.append(app.ui.safe(event.text), token_style(event, highlight))
    table.add_row(Text(app.ui.safe(plain.text)), marked)
    app.ui.show(table)
