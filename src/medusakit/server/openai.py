"""Routes that generate text: OpenAI's two, and our own."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from medusakit.server.access import Asking, Served
from medusakit.server.answering import AnswerFailed, Answering
from medusakit.server.asking import Ask, Asked, ask_chat, ask_completion, ask_generate
from medusakit.server.chat import ChatShape
from medusakit.server.errors import ApiError, Failure, bad_request, queue_full, unknown_model
from medusakit.server.keys import Tenant
from medusakit.server.native import NativeShape
from medusakit.server.relay import Exchange
from medusakit.server.replies import CompletionShape, Head, Shape
from medusakit.server.service import Service, Serving
from medusakit.server.spans import note_request
from medusakit.server.sse import EventStream
from medusakit.server.wire import ChatRequest, CompletionRequest, GenerateRequest
from medusakit.server.wire import Request as Wished

MAX_FORMS_WAITING = 64  # requests whose form is not compiled yet
FORM_S = 2.0  # when to come again: a form takes so long at most

router = APIRouter()
MakeShape = Callable[[Head, Asked], Shape]


@router.post("/v1/chat/completions", response_model=None)
async def chat_completions(body: ChatRequest, request: Request, service: Served, tenant: Asking) -> Response:
    """Answer a conversation through the model's own chat template."""
    return await _answer(
        body, ask_chat(body), "chatcmpl", lambda head, asked: ChatShape(head, asked.calling), request, service, tenant
    )


@router.post("/v1/completions", response_model=None)
async def completions(body: CompletionRequest, request: Request, service: Served, tenant: Asking) -> Response:
    """Continue texts as they are."""

    def shape(head: Head, asked: Asked) -> Shape:
        return CompletionShape(head, asked.prompts if body.echo else (), asked.num_choices)

    return await _answer(body, ask_completion(body), "cmpl", shape, request, service, tenant)


@router.post("/medusa/generate", response_model=None)
async def generate(body: GenerateRequest, request: Request, service: Served, tenant: Asking) -> Response:
    """Like the others, with the provenance of every token."""
    return await _answer(
        body, ask_generate(body), "gen", lambda head, asked: NativeShape(head), request, service, tenant
    )


@router.delete("/v1/requests/{request_id}")
async def cancel(request_id: str, service: Served, tenant: Asking) -> dict[str, Any]:
    """End a request that is being answered, one's own (with an admin's key: anybody's)."""
    mine = [one for one in service.exchanges if one.name == request_id and (one.tenant == tenant.id or tenant.admin)]
    if not mine:
        raise ApiError(Failure(404, "not_found_error", "request_not_found", f"no request {request_id!r} is open"))
    for exchange in mine:
        exchange.cancel()
    return {"id": request_id, "cancelled": True}


async def _answer(
    body: Wished, ask: Ask, kind: str, make_shape: MakeShape, request: Request, service: Service, tenant: Tenant
) -> Response:
    started_s = service.clock()
    serving = service.serving()
    model = _model(service, serving, body.model)
    if body.stream_options is not None and not body.stream:
        raise bad_request("invalid_value", "stream_options needs stream: true", "stream_options")
    asked = await _asked(body, ask, serving, service)
    head = Head(
        f"{kind}-{secrets.token_hex(12)}",
        service.wall_clock(),
        model,
        serving.card.system_fingerprint,
        serving.tokenizer,
        asked.params.logprobs is not None,
        request.headers.get("x-medusa-detail") == "1",
    )
    shape = make_shape(head, asked)
    name = request.state.request_id
    jobs = asked.jobs(tenant, service.options.deadline_s, name)
    _check_room(len(jobs), asked.num_choices, serving)
    exchange = Exchange(serving.scheduler, jobs, service.clock, tenant.id, name)
    span = getattr(request.state, "span", None)
    if span is not None:
        note_request(span, asked, model, head.id)
    answering = Answering(
        name,
        request.url.path,
        asked,
        exchange,
        shape,
        service.metrics,
        service.clock,
        started_s,
        bool(body.stream),
        span,
    )
    return await _send(answering, body, request, service)


async def _asked(body: Wished, ask: Ask, serving: Serving, service: Service) -> Asked:
    """In a thread: a long prompt takes a while to cut into tokens. Forms have few threads of their own, so that those
    who ask for slow ones wait for each other and not others for them."""
    if not body.has_form:
        return await to_thread.run_sync(ask, serving, service.options)
    if service.forms.statistics().tasks_waiting >= MAX_FORMS_WAITING:
        raise queue_full(f"{MAX_FORMS_WAITING} requests wait for their forms (response_format, tools)", FORM_S)
    return await to_thread.run_sync(ask, serving, service.options, limiter=service.forms)


async def _send(answering: Answering, body: Wished, request: Request, service: Service) -> Response:
    service.exchanges.add(answering.exchange)
    if body.stream:
        include_usage = bool(body.stream_options and body.stream_options.include_usage)

        def close() -> None:
            service.exchanges.discard(answering.exchange)
            answering.end()

        return EventStream(answering.frames(include_usage=include_usage), close)
    try:
        document = await answering.whole(request.receive)
    except AnswerFailed as failed:
        return JSONResponse(failed.failure.body(), failed.failure.status)
    finally:
        service.exchanges.discard(answering.exchange)
    return JSONResponse(document, 200 if document else 499)


def _check_room(num_jobs: int, num_choices: int, serving: Serving) -> None:
    """More answers than there can ever be room for are no matter of coming again."""
    most = serving.scheduler.capacity
    if num_jobs > most:
        message = f"{num_jobs} answers are asked for at once; this server holds {most}, decoding and waiting"
        raise bad_request("invalid_value", message, "n" if num_choices > 1 else "prompt")


def _model(service: Service, serving: Serving, asked: str | None) -> str:
    """The name as the client knows it. Raises ApiError 404 that lists what is served."""
    names = service.names(serving)
    if asked is None:
        return names[0]
    if asked in names or service.options.any_model:
        return asked
    raise unknown_model(asked, names)
