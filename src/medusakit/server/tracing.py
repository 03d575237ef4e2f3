"""OpenTelemetry: a span for every request that generates text, where a collector is named in the environment.

Names are those of OpenTelemetry's semantic conventions for generative AI (`gen_ai.*`) and HTTP; ours are under
`medusa.*`. A span holds counts, times and sampling parameters, never a prompt, an answer or a key. OpenTelemetry is
imported only when a collector is named.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from medusakit import __version__
from medusakit.errors import MissingExtraError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "/medusa/generate": "generate_content",
}
FLUSH_MS = 3000


@dataclass(frozen=True, slots=True)
class RequestSpan:
    """The span of one request. clock: the server's, whose times become the span's."""

    span: Span
    path: str
    clock: Callable[[], float]

    def note(self, attributes: Mapping[str, Any]) -> None:
        """What is None is left out."""
        self.span.set_attributes({name: value for name, value in attributes.items() if value is not None})

    def of_model(self, model: str) -> None:
        """`chat smollm2`: the conventions name a span by its operation and model."""
        self.span.update_name(f"{OPERATIONS[self.path]} {model}")

    def event(self, name: str, at_s: float) -> None:
        """Something happened at `at_s` of the clock."""
        self.span.add_event(name, timestamp=time.time_ns() - int(1e9 * (self.clock() - at_s)))

    def failed(self, kind: str) -> None:
        from opentelemetry.trace import StatusCode

        self.span.set_attribute("error.type", kind)
        self.span.set_status(StatusCode.ERROR)


class Tracing:
    """Makes spans and sends them. exporter: where to; the collector of the environment if None."""

    def __init__(self, clock: Callable[[], float], exporter: SpanExporter | None = None) -> None:
        """Raises MissingExtraError without OpenTelemetry."""
        try:
            self._provider = _provider(exporter)
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError as error:
            message = f"no traces: OpenTelemetry is not installed ({error.name}), though a collector is named"
            raise MissingExtraError(message, hint="pip install 'medusakit[otel]'") from None
        self._tracer = self._provider.get_tracer("medusakit", __version__)
        self._context, self._clock = TraceContextTextMapPropagator(), clock

    def start(self, method: str, path: str, headers: Headers) -> RequestSpan:
        """A span that continues the trace the headers name (W3C traceparent)."""
        from opentelemetry.trace import SpanKind

        known = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
        about = {"gen_ai.operation.name": OPERATIONS[path], "gen_ai.provider.name": "medusakit"}
        about |= {"http.request.method": method, "url.path": path}
        span = self._tracer.start_span(
            OPERATIONS[path], self._context.extract(known), kind=SpanKind.SERVER, attributes=about
        )
        return RequestSpan(span, path, self._clock)

    def close(self) -> None:
        """Send what has not been sent, and end."""
        self._provider.force_flush(FLUSH_MS)
        self._provider.shutdown()


class Traced:
    """Around the application: a span from a request's first byte to its answer's last."""

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self._app, self._tracing = app, tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in OPERATIONS:
            await self._app(scope, receive, send)
            return
        found = self._tracing.start(scope["method"], scope["path"], Headers(scope=scope))
        scope.setdefault("state", {})["span"] = found

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                found.note({"http.response.status_code": status, "medusa.request_id": scope["state"].get("request_id")})
                if status >= 400:
                    found.failed(str(status))
            await send(message)

        try:
            await self._app(scope, receive, tell)
        finally:
            found.span.end()


def open_tracing(env: Mapping[str, str], clock: Callable[[], float]) -> Tracing | None:
    """What the environment asks for; None if it names no collector. Raises MissingExtraError."""
    if env.get("OTEL_SDK_DISABLED", "").lower() == "true" or not any(env.get(name) for name in ENDPOINTS):
        return None
    return Tracing(clock)


def _provider(exporter: SpanExporter | None) -> TracerProvider:
    """Of this server alone: nothing is registered for the whole process."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    if exporter is None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        exporter = OTLPSpanExporter()
    found = Resource.create()  # reads OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
    own = {"service.version": __version__}
    if str(found.attributes["service.name"]).startswith("unknown_service"):
        own["service.name"] = "medusakit"
    provider = TracerProvider(resource=found.merge(Resource(own)), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
