"""Histograms out of Prometheus text, as vLLM writes it."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from medusakit.bench.prometheus import Histogram, fetch_metrics, parse_metrics
from medusakit.errors import RuntimeFailure

TEXT = """\
# HELP vllm:request_prompt_tokens Number of prefill tokens processed.
# TYPE vllm:request_prompt_tokens histogram
vllm:request_prompt_tokens_bucket{engine="0",le="10.0",model_name="a"} 2.0
vllm:request_prompt_tokens_bucket{engine="0",le="100.0",model_name="a"} 8.0
vllm:request_prompt_tokens_bucket{engine="0",le="+Inf",model_name="a"} 8.0
vllm:request_prompt_tokens_bucket{engine="1",le="10.0",model_name="a"} 0.0
vllm:request_prompt_tokens_bucket{engine="1",le="100.0",model_name="a"} 2.0
vllm:request_prompt_tokens_bucket{engine="1",le="+Inf",model_name="a"} 2.0
vllm:request_prompt_tokens_sum{engine="0",model_name="a"} 400.0
vllm:request_prompt_tokens_sum{engine="1",model_name="a"} 100.0
vllm:request_generation_tokens_bucket{le="50.0"} 5.0
vllm:request_generation_tokens_bucket{le="+Inf"} 10.0
vllm:request_generation_tokens_sum 900.0
vllm:request_max_num_generation_tokens_bucket{le="1.0"} 3.0
vllm:prompt_tokens_total{model_name="a"} 500.0
vllm:num_requests_running{engine="0"} 3.0
process_start_time_seconds 1.75e+09
"""


def test_label_sets_are_added_up() -> None:
    found = parse_metrics(TEXT, "there")
    assert found.prompt == Histogram({10.0: 2.0, 100.0: 10.0, math.inf: 10.0}, 500.0)
    assert (found.prompt.count, found.prompt.mean, found.prompt.highest) == (10, 50.0, 100.0)
    assert found.output.highest == math.inf
    assert (found.running, found.started_s) == (3.0, 1.75e9)


def test_quantiles_lie_within_their_bucket() -> None:
    found = parse_metrics(TEXT, "there")
    assert found.prompt.quantile(0.2) == 10.0
    assert found.prompt.quantile(0.6) == pytest.approx(10 + 90 * (6 - 2) / 8)
    assert found.output.quantile(0.25) == pytest.approx(25.0)
    assert found.output.quantile(0.95) == 50.0  # no more is known of the last bucket


def test_a_page_without_lengths_is_refused() -> None:
    with pytest.raises(RuntimeFailure, match="nothing ends in prompt_tokens_bucket"):
        parse_metrics("up 1\n", "there")
    fresh = "\n".join(f'request_{end}_tokens_bucket{{le="+Inf"}} 0.0' for end in ("prompt", "generation"))
    with pytest.raises(RuntimeFailure, match="no request yet"):
        parse_metrics(fresh, "there")


@pytest.fixture
def server() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(TEXT.encode())

        def log_message(self, format: str, *arguments: object) -> None:
            """Silent."""

    with HTTPServer(("127.0.0.1", 0), Handler) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


def test_a_running_server(server: str) -> None:
    for url in (server, f"{server}/", f"{server}/metrics"):
        assert fetch_metrics(url).prompt.count == 10
    with pytest.raises(RuntimeFailure, match="cannot be read: Not Found"):
        fetch_metrics(f"{server}/elsewhere")


def test_no_server() -> None:
    with pytest.raises(RuntimeFailure, match="cannot be read"):
        fetch_metrics("http://127.0.0.1:9")
    with pytest.raises(RuntimeFailure, match="no address of a server"):
        fetch_metrics("file:///etc")
