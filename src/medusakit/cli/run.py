"""`medusa run`: one prompt, one answer, one line of figures."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from medusakit.cli.app import App, current_app
from medusakit.cli.group import Command
from medusakit.cli.options import MODEL, SAMPLING, SPECULATION, json_option, settings
from medusakit.errors import UsageError

if TYPE_CHECKING:
    from medusakit.engine.events import GenerationResult
    from medusakit.engine.stream import Stream
    from medusakit.llm import LLM
    from medusakit.settings import SamplingParams


@click.command(cls=Command)
@click.argument("prompt", required=False)
@settings(*MODEL, *SAMPLING, "speculation", *SPECULATION, "highlight", "stream")
@click.option("--raw", is_flag=True, help="Give the prompt to the model as it is, without its chat template.")
@click.option(
    "--json-schema",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The answer is a JSON document of the schema in FILE.",
)
@json_option
@click.pass_context
def run(context: click.Context, prompt: str | None, raw: bool, json_schema: Path | None, json_file: str | None) -> None:
    """Answer PROMPT, or what is piped in, or both.

    \b
    medusa run "Explain a B-tree in two sentences"
    medusa run "What does this do?" < script.py
    medusa run "Tell me a story" --temperature 0.8 --seed 7

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
    result = _answer(app, text, raw, json_schema, json_file)
    if result.finish_reason == "cancelled":
        context.exit(130)


def _answer(app: App, text: str, raw: bool, json_schema: Path | None, json_file: str | None) -> GenerationResult:
    from medusakit.cli.answer import drain, show_answer

    schema = None if json_schema is None else _schema(json_schema)
    llm = app.load()
    params = app.sampling()
    if schema is not None:
        params = replace(params, grammar=llm.grammars.json_schema(schema))
    stream = _start(app, llm, text, raw, params)
    highlight = "none" if app.config.highlight == "auto" else app.config.highlight
    result = (
        drain(stream) if json_file == "-" else show_answer(app.ui, stream, highlight=highlight, live=app.config.stream)
    )
    _finish(app, llm, result, json_file)
    return result


def _schema(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{path} holds no JSON: {error}", hint='{"type": "object"}') from None
    if not isinstance(found, dict):
        raise UsageError(f"{path} holds no JSON schema, which is an object", hint='{"type": "object"}')
    return found


def _start(app: App, llm: LLM, text: str, raw: bool, params: SamplingParams) -> Stream:
    config = app.config
    prompt: str | list[dict[str, str]] = text
    if config.system:
        prompt = [{"role": "system", "content": config.system}, {"role": "user", "content": text}]
    return llm.stream(prompt, params, speculation=config.speculation, raw=raw)


def _finish(app: App, llm: LLM, result: GenerationResult, json_file: str | None) -> None:
    from medusakit.bench.circumstances import circumstances
    from medusakit.cli.footer import answer_footer
    from medusakit.cli.ui import write_json
    from medusakit.engine.document import generation

    app.ui.note(answer_footer(llm, result))
    if json_file:
        about = circumstances(llm, asdict(app.config), app.sampling())
        write_json(app.ui, json_file, generation(result) | about)
