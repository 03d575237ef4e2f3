"""`medusa serve`: the model over HTTP."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from medusakit.cli.app import App, current_app
from medusakit.cli.group import Command
from medusakit.cli.options import MODEL, SAMPLING, SERVE, SPECULATION, settings
from medusakit.errors import MissingExtraError

if TYPE_CHECKING:
    import socket

    from medusakit.engine.jobs import SchedulerSettings
    from medusakit.server.service import Options, Serving
    from medusakit.server.tracing import Tracing

_LOOPBACK = ("127.", "localhost", "::1")
_ANSWER = tuple(name for name in SAMPLING if name not in ("system", "seed", "stop"))


@click.command(cls=Command)
@settings(*MODEL, *SERVE, "speculation", *SPECULATION, *_ANSWER)
def serve() -> None:
    """Answer over HTTP, as OpenAI's API does: /v1/chat/completions, /v1/completions, /v1/models; also
    /medusa/generate, /metrics, /v1/state, /docs.

    \b
    medusa serve -m smollm2
    medusa serve -m smollm2 --chat-template examples/tools.jinja
    medusa serve -m ./any-model --heads ./heads --api-keys keys.txt --host 0.0.0.0

    Sampling options are defaults for requests that do not say. SIGTERM lets open requests finish; a second one does
    not. MEDUSA_API_KEY adds an API key to those of --api-keys.
    """
    app = current_app()
    try:
        from medusakit.server import run
    except ImportError as error:
        message = f"medusa serve needs {error.name}, which is not installed"
        raise MissingExtraError(message, hint="pip install 'medusakit[server]'") from None
    _serve(app, run.listen(app.config.host, app.config.port))


def _serve(app: App, address: socket.socket) -> None:
    from medusakit.server import run
    from medusakit.server.keys import read_keys
    from medusakit.server.opening import open_serving
    from medusakit.server.service import Service

    tracing = _tracing(app)
    service = Service(_options(app), read_keys(app.config.api_keys, app.env), tracing=tracing)
    if service.keys.open and not app.config.host.startswith(_LOOPBACK):
        app.ui.advise(f"anybody who reaches {app.config.host} may ask and administrate", "--api-keys FILE")
    if not app.ui.quiet:
        run.log_to_stderr()
    started, scheduling = time.monotonic(), _scheduling(app)

    def load() -> Serving:
        llm = app.load(max_rows=scheduling.max_rows)
        return open_serving(llm, app.config.model, scheduling, service)

    def on_ready(serving: Serving) -> None:
        _introduce(app, serving, address, keys=not service.keys.open)
        app.ui.note(f"  ready in {time.monotonic() - started:.1f} s")

    try:
        if not run.serve(service, load, address, on_ready):
            app.ui.warn("some requests were cut off: they were not done in the time that --drain gives")
    finally:
        if tracing is not None:
            tracing.close()


def _tracing(app: App) -> Tracing | None:
    """Traces are an extra: the server answers without them, too."""
    from medusakit.server.tracing import open_tracing

    try:
        return open_tracing(app.env, time.perf_counter)
    except MissingExtraError as error:
        app.ui.warn(f"{error.message}; {error.hint}")
        return None


def _introduce(app: App, serving: Serving, address: socket.socket, *, keys: bool) -> None:
    """What is served, and where."""
    card, (host, port) = serving.card, address.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    app.ui.note(f"  model   {card.name} ({card.weights}, context {card.context})")
    drafts = card.drafter + (f", heads {card.heads[:10]}" if card.heads else ", no heads")
    app.ui.note(f"  drafts  {drafts if app.config.speculation else f'off; /admin/speculation switches on {drafts}'}")
    app.ui.note(f"  api     {url}/v1   keys: {'on' if keys else 'off'}   page: {url}/")


def _options(app: App) -> Options:
    from medusakit.server.service import Options

    config = app.config
    return Options(
        defaults=app.sampling(),
        names=config.served_name,
        any_model=config.any_model,
        max_body_bytes=int(config.max_body * (1 << 20)),
        deadline_s=config.deadline,
        drain_s=config.drain,
        cors=config.cors,
        speculation=config.speculation,
        metrics_prefix=config.metrics_prefix,
        tool_format=config.tool_format,
    )


def _scheduling(app: App) -> SchedulerSettings:
    from medusakit.engine.jobs import MIB, SchedulerSettings

    config = app.config
    per_key = config.cache_memory_per_key
    return SchedulerSettings(
        max_rows=config.max_rows,
        max_queue=config.max_queue,
        prefill_chunk=config.prefill_chunk,
        cache_bytes=int(config.cache_memory * MIB) if config.enable_tree_cache else 0,
        cache_bytes_per_key=None if per_key is None else int(per_key * MIB),
        cache_block_tokens=1 if config.kv_cache_sharding == "auto" else int(config.kv_cache_sharding),
        cache_blocks=config.shard_count,
    )
