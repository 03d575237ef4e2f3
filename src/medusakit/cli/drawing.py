"""`medusa train draw`: prompts that the model writes itself, through its own chat template."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from medusakit.cli.app import App, current_app
from medusakit.cli.group import Command
from medusakit.cli.options import settings

if TYPE_CHECKING:
    from medusakit.train.endpoint import Said

LENGTH = 300


@click.command("draw", cls=Command)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.jsonl")
@click.option("--count", type=click.IntRange(1), default=1000, metavar="N", help="Prompts to write. [1000]")
@click.option("--license", default="unknown", help="Under which the model's texts may be used; goes into the card.")
@click.option("--endpoint", metavar="URL", help="Let this OpenAI-compatible server write them.")
@click.option("--endpoint-model", metavar="NAME", default="", help="Model to ask there; the only one if unset.")
@click.option("--api-key-env", metavar="VAR", default="", help="Variable that holds the server's API key.")
@click.option("--concurrency", type=click.IntRange(1, 1024), default=16, metavar="N", help="Requests at once. [16]")
@settings("model", "heads", "weights", "threads", "offline")
def draw(
    file: Path, count: int, license: str, endpoint: str | None, endpoint_model: str, api_key_env: str, concurrency: int
) -> None:
    """Let the model write prompts itself, as a file that a recipe names under [seeds] files.

    The model is given its chat template up to where a user's words begin, and goes on. Repeats, texts that are cut,
    long ones and questions of the benchmarks are left out. The same command goes on after a break.
    """
    from medusakit.cli.stages import StageBars
    from medusakit.models.resolve import resolve
    from medusakit.text.tokenizer import load_tokenizer
    from medusakit.train.drawn import draw_seeds, user_header

    app = current_app()
    tokenizer = load_tokenizer(resolve(app.config.model, offline=app.config.offline))
    header = user_header(tokenizer)
    if endpoint:
        write = _remote(endpoint, endpoint_model, api_key_env, header)
    else:
        write, concurrency = _local(app, header), 1
    with StageBars(app.ui) as bars:
        draw_seeds(write, app.config.model, count, file, license=license, concurrency=concurrency, on_progress=bars)


def _remote(url: str, model: str, api_key_env: str, header: list[int]) -> Callable[[int], Said]:
    from medusakit.train.endpoint_answers import EndpointConfig, endpoint_of

    server = endpoint_of(EndpointConfig(url=url, model=model, api_key_env=api_key_env)).checked()

    def write(number: int) -> Said:
        return server.complete(header, max_tokens=LENGTH, temperature=1.0, seed=number)

    return write


def _local(app: App, header: list[int]) -> Callable[[int], Said]:
    from medusakit.settings import SamplingParams
    from medusakit.train.endpoint import Said

    llm = app.load()

    def write(number: int) -> Said:
        with llm.stream_ids(header, SamplingParams(max_tokens=LENGTH, temperature=1.0, seed=number)) as stream:
            for _ in stream:
                pass
            result = stream.result
        return Said(result.text, result.finish_reason == "stop", len(result.token_ids))

    return write
