"""The application: routes, who may use them, and how failures are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from medusakit import __version__
from medusakit.errors import DrainingError, MedusaError, QueueFullError
from medusakit.server import admin, openai, pages, state
from medusakit.server.errors import ApiError, Failure, of_medusa, of_validation, queue_full, unavailable
from medusakit.server.middleware import BodyLimit, LastResort, RequestId
from medusakit.server.service import Service
from medusakit.server.tracing import Traced
from medusakit.server.wire import ChatRequest, CompletionRequest, ErrorReply, GenerateRequest

LOCALHOST = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
PARAMS = (*ChatRequest.model_fields, *CompletionRequest.model_fields, *GenerateRequest.model_fields)
FAILURES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorReply, "description": text}
    for status, text in {
        400: "a request that cannot be meant",
        401: "no valid API key",
        403: "a key that may not do this",
        404: "no such model or request",
        409: "it does not fit what is there; nothing has changed",
        413: "the body is too large",
        429: "the queue is full",
        500: "internal error",
        503: "loading or stopping",
        504: "the deadline of a request",
    }.items()
}
_CODES = {404: "not_found", 405: "method_not_allowed", 413: "request_too_large", 415: "unsupported_media_type"}

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


class _Application(FastAPI):
    """Its document tells of no 422, which FastAPI names for every route: what is not valid is answered with 400."""

    def openapi(self) -> dict[str, Any]:
        document = super().openapi()
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            document["components"]["schemas"].pop(name, None)
        return document


def create_app(service: Service, lifespan: Lifespan | None = None) -> FastAPI:
    """An ASGI application around a service."""
    app = _Application(
        title="medusakit",
        version=__version__,
        summary="Exact, faster decoding behind OpenAI's API",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own pages load from other hosts; server/pages.py has ours
        redoc_url=None,
    )
    app.state.service = service
    app.include_router(state.open_router)
    app.include_router(pages.router)
    for router in (openai.router, state.router, admin.router):
        app.include_router(router, responses=FAILURES)
    _handle_failures(app)
    app.add_middleware(BodyLimit, max_bytes=service.options.max_body_bytes)
    if service.options.cors:
        app.add_middleware(CORSMiddleware, **_cors(service.options.cors))
    app.add_middleware(LastResort)
    if service.tracing is not None:
        app.add_middleware(Traced, tracing=service.tracing)
    app.add_middleware(RequestId)
    return app


def _cors(origins: tuple[str, ...]) -> dict[str, Any]:
    """Never with credentials: keys are sent as a header that pages set themselves."""
    named = [origin for origin in origins if origin != "localhost"]
    return {
        "allow_origins": named,
        "allow_origin_regex": LOCALHOST if "localhost" in origins else None,
        "allow_methods": ["GET", "POST", "DELETE"],
        "allow_headers": ["authorization", "content-type", "x-request-id", "x-medusa-detail"],
        "expose_headers": ["x-request-id", "retry-after"],
        "allow_credentials": False,
    }


def _handle_failures(app: FastAPI) -> None:
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(MedusaError, _medusa_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_exception)


def reply(failure: Failure, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse(failure.body(), failure.status, headers={**failure.headers, **(headers or {})})


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return reply(error.failure)


async def _medusa_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, MedusaError)
    if isinstance(error, QueueFullError):
        return reply(queue_full(error.message, error.retry_after_s).failure)
    if isinstance(error, DrainingError):
        return reply(unavailable("draining", error.message, 30).failure)
    known = of_medusa(error, PARAMS)
    if known is None:
        raise error
    return reply(known)


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return reply(of_validation(error.errors(), error.body))


async def _http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = error.status_code
    if status == 400:  # FastAPI's word for a body that is no JSON at all
        return reply(Failure(400, "invalid_request_error", "invalid_json", "the body is not valid JSON"))
    kind = "not_found_error" if status == 404 else "invalid_request_error"
    message = f"{request.method} {request.url.path}: {error.detail}" if status in (404, 405) else str(error.detail)
    return reply(Failure(status, kind, _CODES.get(status, "http_error"), message), error.headers)
