"""Spans of requests: what they hold, whose trace they continue, and that a collector gets them."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx2 as httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from medusakit.errors import MissingExtraError
from medusakit.server.keys import Keyring
from medusakit.server.service import Options, Service, Serving
from medusakit.server.tracing import ENDPOINTS, Tracing, open_tracing
from server_fakes import card_of, listening, scheduler_of, scripted

SECRET = "a prompt that nobody may read"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CHAT = {"model": "toy", "messages": [{"role": "user", "content": SECRET}], "max_tokens": 9, "seed": 3}


def spans_of(path, body, headers=None, clock=None):
    """The answer, and the spans of asking once."""
    exporter = InMemorySpanExporter()
    service = Service(Options(), Keyring(()))
    service.tracing = Tracing(service.clock, exporter)
    answer = ask(service, path, body, headers)
    return answer, exporter.get_finished_spans()


def ask(service, path, body, headers=None):
    engine = scripted("abc ")
    scheduler = scheduler_of(engine)
    service.opened(Serving(scheduler, engine.tokenizer, card_of(engine.runtime)))
    with listening(service) as url, httpx.Client(base_url=url) as client:
        answer = client.post(path, json=body, headers=headers)
    scheduler.close()
    service.tracing.close()
    return answer


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_is_one_span_with_counts_and_times_and_no_text(stream):
    answer, (span,) = spans_of("/v1/chat/completions", CHAT | {"stream": stream})
    assert answer.status_code == 200
    found = span.attributes
    wanted = {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "toy", "gen_ai.request.max_tokens": 9,
        "gen_ai.request.seed": 3, "gen_ai.usage.output_tokens": 9, "gen_ai.response.finish_reasons": ("length",),
        "http.response.status_code": 200, "medusa.outcome": "ok", "medusa.request_id": answer.headers["x-request-id"],
    }  # fmt: skip
    assert {name: found[name] for name in wanted} == wanted
    assert found["gen_ai.usage.input_tokens"] > len(SECRET)
    assert found["medusa.draft.tokens"] >= found["medusa.draft.accepted_tokens"] > 0
    assert found["medusa.tokens_per_step"] == pytest.approx(8 / found["medusa.steps"], abs=1e-3)
    assert found["medusa.time_to_first_token_s"] >= found["medusa.queue_s"] >= 0
    (event,) = span.events
    assert event.name == "first_token" and span.start_time <= event.timestamp <= span.end_time
    assert SECRET not in span.to_json() and "abc abc" not in span.to_json()


def test_the_trace_of_the_client_goes_on_and_others_begin_their_own():
    _, (span,) = spans_of("/v1/chat/completions", CHAT, {"traceparent": f"00-{TRACE}-{PARENT}-01"})
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)
    for broken in ({}, {"traceparent": "nonsense"}):
        _, (span,) = spans_of("/v1/chat/completions", CHAT, broken)
        assert span.parent is None


def test_refusals_are_spans_of_errors_and_other_routes_are_none():
    answer, (span,) = spans_of("/v1/completions", {"model": "other", "prompt": SECRET})
    assert answer.status_code == 404 and span.attributes["error.type"] == "404" and not span.status.is_ok
    assert SECRET not in span.to_json()
    assert spans_of("/admin/speculation", {"on": True})[1] == ()


def test_a_collector_over_http_gets_the_span(monkeypatch):
    got = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv(ENDPOINTS[1], f"http://127.0.0.1:{server.server_port}")
        service = Service(Options(), Keyring(()))
        service.tracing = open_tracing({ENDPOINTS[1]: "set"}, service.clock)
        ask(service, "/v1/chat/completions", CHAT)
        server.shutdown()
    ((path, body),) = got
    (sent,) = ExportTraceServiceRequest.FromString(body).resource_spans
    (span,) = sent.scope_spans[0].spans
    assert (path, span.name) == ("/v1/traces", "chat toy")
    assert "medusakit" in {one.value.string_value for one in sent.resource.attributes if one.key == "service.name"}
    assert SECRET.encode() not in body and json.dumps(SECRET).encode() not in body


@pytest.mark.parametrize("env", [{}, {ENDPOINTS[0]: ""}, {ENDPOINTS[0]: "http://x", "OTEL_SDK_DISABLED": "true"}])
def test_nothing_is_opened_unless_a_collector_is_named(env):
    assert open_tracing(env, lambda: 0.0) is None


def test_missing_packages_are_named_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(MissingExtraError, match="OpenTelemetry is not installed") as raised:
        open_tracing({ENDPOINTS[0]: "http://localhost:4318"}, lambda: 0.0)
    assert raised.value.hint == "pip install 'medusakit[otel]'"
