"""`medusa run`: one prompt, one answer, one line of figures."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from medusakit.cli.app import App, current_app
from medusakit.cli.group import Command
from medusakit.cli.options import MODEL, SAMPLING, SPECULATION, json_option, settings
from medusakit.errors import UsageError

if TYPE_CHECKING:
    from medusakit.engine.events import GenerationResult
    from medusakit.llm import LLM, Stream


@click.command(cls=Command)
@click.argument("prompt", required=False)
@settings(*MODEL, *SAMPLING, "speculation", *SPECULATION, "highlight", "stream")
@click.option("--raw", is_flag=True, help="Give the prompt to the model as it is, without its chat template.")
@json_option
@click.pass_context
def run(context: click.Context, prompt: str | None, raw: bool, json_file: str | None) -> None:
    """Answer PROMPT, or what is piped in, or both.

    Marks: --highlight accepted underlines the tokens that were drafted and accepted; step shades every other
    verify pass.
    """
    from medusakit.cli.prompt import read_prompt

    app = current_app()
    if raw and app.config.system:
        raise UsageError(
            "--raw has no place for a system message", hint="leave out --system, or write it in the prompt"
        )
    text = read_prompt(prompt)
    result = _answer(app, text, raw, json_file)
    if result.finish_reason == "cancelled":
        context.exit(130)


def _answer(app: App, text: str, raw: bool, json_file: str | None) -> GenerationResult:
    from medusakit.cli.answer import drain, show_answer

    llm = app.load()
    stream = _start(app, llm, text, raw)
    highlight = "none" if app.config.highlight == "auto" else app.config.highlight
    result = (
        drain(stream) if json_file == "-" else show_answer(app.ui, stream, highlight=highlight, live=app.config.stream)
    )
    _finish(app, llm, result, json_file)
    return result


def _start(app: App, llm: LLM, text: str, raw: bool) -> Stream:
    config = app.config
    prompt: str | list[dict[str, str]] = text
    if config.system:
        prompt = [{"role": "system", "content": config.system}, {"role": "user", "content": text}]
    return llm.stream(prompt, app.sampling(), speculation=config.speculation, raw=raw)


def _finish(app: App, llm: LLM, result: GenerationResult, json_file: str | None) -> None:
    from medusakit.bench.circumstances import circumstances
    from medusakit.cli.footer import answer_footer
    from medusakit.cli.ui import write_json
    from medusakit.engine.document import generation

    app.ui.note(answer_footer(llm, result))
    if json_file:
        about = circumstances(llm, asdict(app.config), app.sampling())
        write_json(app.ui, json_file, generation(result) | about)
