"""Keys, probes, metrics, state, administration, other sites' pages, and what is logged."""

import json
import logging

import httpx2 as httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from medusakit.errors import ArtifactMismatchError, UsageError
from medusakit.server.keys import Keyring, read_keys
from medusakit.server.logs import LOGGER, JsonLines
from medusakit.server.service import Drafting, Options, Service, Serving
from medusakit.tree.cost import StepCost
from page_fakes import page_service
from server_fakes import card_of, listening, random_engine, scheduler_of, scripted, service_of

ASKED = {"model": "toy", "prompt": "secret words", "max_tokens": 12}
COST = StepCost.single({1: 0.01, 2: 0.02})


def bearer(key):
    return {"authorization": f"Bearer {key}"}


def test_keys_open_what_is_closed():
    service, scheduler = service_of(scripted("abc "), keys=("first", "admin:second"))
    with listening(service) as url, httpx.Client(base_url=url) as client:
        for path in ("/health", "/ready", "/", "/docs", "/openapi.json"):
            assert client.get(path).status_code == 200, path
        for headers in (
            {},
            bearer("wrong"),
            {"authorization": "Bearer"},
            {"authorization": "Basic first"},
            {"authorization": "first"},
        ):
            for path in ("/v1/models", "/metrics", "/v1/state"):
                response = client.get(path, headers=headers)
                assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")
            assert client.post("/v1/completions", json=ASKED, headers=headers).status_code == 401
        assert client.get("/v1/models", headers=bearer("first")).status_code == 200
        assert client.post("/v1/completions", json=ASKED, headers=bearer("first")).status_code == 200
        assert client.post("/v1/completions", json=ASKED, headers=bearer("second")).status_code == 200
        refused = client.post("/admin/speculation", json={"on": False}, headers=bearer("first"))
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "admin_key_required")
        assert client.post("/admin/speculation", json={"on": False}, headers=bearer("second")).status_code == 200
    scheduler.close()
    first, second = scheduler.jobs
    assert first.key and second.key and first.key != second.key
    assert "first" not in first.key


def test_others_requests_are_not_ones_own_to_cancel():
    service, scheduler = service_of(scripted("abc "), keys=("a", "b"), pause_s=0.02)
    with listening(service) as url, httpx.Client(base_url=url) as client:
        headers = bearer("a") | {"x-request-id": "as"}
        with client.stream(
            "POST", "/v1/completions", json=ASKED | {"stream": True, "max_tokens": 2000}, headers=headers
        ):
            assert client.delete("/v1/requests/as", headers=bearer("b")).status_code == 404
            assert client.delete("/v1/requests/as", headers=bearer("a")).status_code == 200
    scheduler.close()


def test_key_files(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# ours\nalpha\n\nadmin:omega\n")
    ring = read_keys(str(path), {"MEDUSA_API_KEY": "env"})
    tenants = {key: ring.tenant(f"Bearer {key}") for key in ("alpha", "omega", "env")}
    assert len({tenant.id for tenant in tenants.values()}) == 3
    assert [tenant.admin for tenant in tenants.values()] == [False, True, False]
    assert Keyring(()).tenant(None).admin
    path.write_bytes(b"\xef\xbb\xbfadmin: omega \r\n\r\nalpha\r\n")  # as Windows' editors write it
    ring = read_keys(str(path), {"MEDUSA_API_KEY": "from a file\n"})
    assert [ring.tenant(f"Bearer {key}").admin for key in ("omega", "alpha", "from a file")] == [True, False, False]
    for lines, env in (("alpha\nadmin:\n", {}), ("admin: \n", {}), ("alpha", {"MEDUSA_API_KEY": " \n"})):
        path.write_text(lines)  # an empty key would be everybody's
        with pytest.raises(UsageError, match="an API key is empty"):
            read_keys(str(path), env)
    path.write_text("# nothing\n")
    with pytest.raises(UsageError, match="holds no API key"):
        read_keys(str(path), {})
    with pytest.raises(UsageError, match="cannot read"):
        read_keys(str(tmp_path / "none"), {})


def test_a_key_in_other_letters_and_one_with_and_without_the_mark():
    ring = Keyring(("admin:schlüssel", "schlüssel", "other"))
    header = "schlüssel".encode().decode("latin-1")  # as servers read the bytes of a header
    assert ring.tenant(f"Bearer {header}").admin and not ring.tenant("Bearer other").admin
    assert ring.tenant("Bearer schlussel") is None


def test_not_ready_while_loading():
    service = Service(Options(), Keyring(()))
    with listening(service) as url, httpx.Client(base_url=url) as client:
        assert client.get("/health").status_code == 200
        assert client.get("/ready").json() == {"status": "loading"}
        response = client.post("/v1/completions", json=ASKED)
        assert (response.status_code, response.json()["error"]["code"]) == (503, "loading")
        assert "retry-after" in response.headers
        assert client.get("/v1/state").json()["status"] == "loading"
        assert b"build_info" in client.get("/metrics").content
        engine = scripted("abc ")
        scheduler = scheduler_of(engine)
        service.opened(Serving(scheduler, engine.tokenizer, card_of(engine.runtime)))
        assert client.get("/ready").status_code == 200
        assert client.post("/v1/completions", json=ASKED).status_code == 200
        scheduler.close()


def samples(text):
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize("prefix", ["medusa_", "vllm:"])
def test_metrics_have_their_names(prefix):
    service, scheduler = service_of(scripted("abc "), Options(metrics_prefix=prefix))
    with listening(service) as url, httpx.Client(base_url=url) as client:
        client.post("/v1/completions", json=ASKED)
        service.metrics.on_step(outcome())
        found = samples(client.get("/metrics").text)
    scheduler.close()
    named = {name: value for (name, *labels), value in found.items() if not labels}
    assert named[f"{prefix}spec_decode_num_drafts_total"] == 5
    assert named[f"{prefix}spec_decode_num_draft_tokens_total"] == 40
    assert named[f"{prefix}spec_decode_num_accepted_tokens_total"] == 10
    assert named[f"{prefix}spec_decode_num_draft_depth_total"] == 20
    assert found[f"{prefix}spec_decode_num_accepted_tokens_per_pos_total", "1"] == 4
    assert found[f"{prefix}steps_total", "tree"] > 0
    assert found[f"{prefix}request_success_total", "stop"] == 1
    for name in ("time_to_first_token", "time_per_output_token", "e2e_request_latency", "request_queue_time"):
        assert named[f"{prefix}{name}_seconds_count"] == 1
    assert named[f"{prefix}inter_token_latency_seconds_count"] > 1
    assert {phase for (name, *labels) in found if name == f"{prefix}step_seconds_count" for phase in labels} == {
        "draft", "forward", "verify",
    }  # fmt: skip
    assert named[f"{prefix}rho_eff_rolling_1m"] == pytest.approx(1 - 0.5**3)
    assert named[f"{prefix}tokens_per_step"] == pytest.approx(2.5)
    assert named[f"{prefix}verify_time_ratio"] == pytest.approx(0.8)
    assert named[f"{prefix}kv_cache_usage_ratio"] == 0.05
    assert found[f"{prefix}tree_node_accepted_total", "1"] > 0


def outcome():
    from medusakit.engine.plan import PLAIN_PLAN
    from medusakit.engine.step import Outcome

    return Outcome(PLAIN_PLAN, 2, 5, 6, 3, 14, 7, 50, 0.01, 0.08, 0.01)


def test_state_has_no_prompts():
    service, scheduler = service_of(scripted("abc "), pause_s=0.02)
    with listening(service) as url, httpx.Client(base_url=url) as client:
        body = ASKED | {"stream": True, "max_tokens": 1000}
        with client.stream("POST", "/v1/completions", json=body) as response:
            lines = response.iter_lines()
            next(lines)
            text = client.get("/v1/state").text
    scheduler.close()
    state = json.loads(text)
    assert (state["status"], state["scheduler"]["running"]) == ("ready", 1)
    assert state["model"]["name"] == "toy"
    assert "secret" not in text


def test_models_under_their_names():
    service, scheduler = service_of(scripted("abc "), Options(names=("org/toy", "alias")))
    with listening(service) as url, httpx.Client(base_url=url) as client:
        listed = client.get("/v1/models", headers=bearer("anything")).json()
        assert [model["id"] for model in listed["data"]] == ["org/toy", "alias", "toy"]
        assert client.get("/v1/models/org/toy").json()["max_model_len"] == 4096
        for name in ("org/toy", "alias", "toy"):
            assert client.post("/v1/completions", json=ASKED | {"model": name}).json()["model"] == name
    scheduler.close()


def test_any_model_name_where_that_is_wanted():
    service, scheduler = service_of(scripted("abc "), Options(any_model=True))
    with listening(service) as url:
        assert httpx.post(f"{url}/v1/completions", json=ASKED | {"model": "gpt-9"}).json()["model"] == "gpt-9"
    scheduler.close()


def test_speculation_is_switched_while_running():
    service, scheduler = service_of(scripted("abc "))
    with listening(service) as url, httpx.Client(base_url=url) as client:

        def rounds():
            timings = client.post("/v1/completions", json=ASKED).json()["timings"]
            return timings["draft_rounds"], timings["draft_n"]

        drafted = rounds()
        assert client.post("/admin/speculation", json={"on": False}).json() == {"speculation": False}
        plain = rounds()
        assert client.post("/admin/speculation", json={"on": True}).status_code == 200
        assert drafted[0] < 11 and drafted[1] > 0
        assert plain == (11, 0)
        off = client.post("/v1/completions", json=ASKED | {"medusa": {"off": True}}).json()["timings"]
        assert off["draft_n"] == 0
    scheduler.close()


def opened_by(table):
    """Heads by path; an exception is raised."""

    def open_drafting(path, drafter):
        found = table[path]
        if isinstance(found, Exception):
            raise found
        return Drafting(found, drafter or "hydra", path)

    return open_drafting


def test_heads_are_replaced_and_rolled_back():
    service, scheduler = service_of(scripted("abc "))
    foreign = ArtifactMismatchError("these heads are another model's", hint="other heads")
    table = {"new": "parts", "foreign": foreign, "broken": RuntimeError("does not start")}
    engine = scripted("abc ")
    serving = Serving(
        scheduler,
        engine.tokenizer,
        card_of(engine.runtime),
        Drafting("old", "scripted", ""),
        opened_by(table),
        cost=COST,
    )
    service.opened(serving)
    with listening(service) as url, httpx.Client(base_url=url) as client:

        def swap(path):
            return client.post("/admin/heads", json={"path": path})

        assert client.post("/admin/heads/rollback").status_code == 409
        refused = swap("foreign")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "artifact_mismatch")
        assert swap("broken").status_code == 500
        state = client.get("/v1/state").json()
        assert (state["model"]["drafter"], state["step_ms"]) == ("scripted", {"256": {"1": 10, "2": 20}})
        assert scheduler.replaced == []
        assert swap("new").json()["heads"] == "new"
        assert swap("new").json()["heads"] == "new"  # the same again: the old ones can still be had back
        assert client.get("/v1/state").json()["model"]["drafter"] == "hydra"
        assert client.post("/v1/completions", json=ASKED).status_code == 200
        assert client.post("/admin/heads/rollback").json()["drafter"] == "scripted"
        assert scheduler.replaced == ["parts", "parts", "old"]
    scheduler.close()


def test_heads_that_the_scheduler_refuses_change_nothing():
    service, scheduler = service_of(scripted("abc "))
    engine = scripted("abc ")
    unfit = Drafting(ArtifactMismatchError("no", hint="none"), "hydra", "unfit")  # the fake raises what it is given
    card = card_of(engine.runtime)
    service.opened(Serving(scheduler, engine.tokenizer, card, None, lambda path, drafter: unfit))
    with listening(service) as url, httpx.Client(base_url=url) as client:
        assert client.post("/admin/heads", json={"path": "unfit"}).status_code == 409
        assert client.get("/v1/state").json()["model"]["drafter"] == "scripted"
        assert client.post("/v1/completions", json=ASKED).status_code == 200
    scheduler.close()


@pytest.mark.parametrize(
    ("cors", "origin", "allowed"),
    [((), "http://localhost:3000", False), (("localhost",), "http://localhost:3000", True),
     (("localhost",), "http://localhost.evil.example", False), (("https://a.example",), "https://a.example", True),
     (("https://a.example",), "https://b.example", False)],
)  # fmt: skip
def test_other_sites_ask_only_where_they_may(cors, origin, allowed):
    service, scheduler = service_of(scripted("abc "), Options(cors=cors))
    with listening(service) as url:
        headers = {"origin": origin, "access-control-request-method": "POST"}
        asked = httpx.options(f"{url}/v1/completions", headers=headers)
        assert (asked.headers.get("access-control-allow-origin") == origin) == allowed
        assert "access-control-allow-credentials" not in asked.headers
    scheduler.close()


def test_log_lines_have_figures_and_no_prompts():
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(JsonLines().format(record))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    service, scheduler = service_of(scripted("abc "))
    try:
        with listening(service) as url:
            httpx.post(f"{url}/v1/completions", json=ASKED, headers={"x-request-id": "r1"})
    finally:
        LOGGER.removeHandler(handler)
    scheduler.close()
    line = json.loads(lines[-1])
    assert (line["event"], line["request_id"], line["outcome"], line["tokens"]) == ("request", "r1", "ok", 12)
    assert line["prompt_tokens"] == 13 and line["ttft_ms"] > 0 and line["tokens_per_step"] > 1
    assert "secret" not in "".join(lines) and "abc" not in "".join(lines)


def test_native_answer_has_the_provenance_of_every_token():
    service, scheduler = service_of(random_engine(1))
    with listening(service) as url, httpx.Client(base_url=url) as client:
        whole = client.post("/medusa/generate", json={"prompt": "one", "max_tokens": 9}).json()
        body = {"prompt": "one", "max_tokens": 9, "stream": True}
        frames = client.post("/medusa/generate", json=body).text.split("\n\n")
    scheduler.close()
    assert len(whole["tokens"]) == 9
    assert set(whole["tokens"][0]) == {"token_id", "text", "from_draft", "depth", "node", "step", "logprob", "top"}
    assert (whole["lossless"], whole["finish_reason"]) == (True, "length")
    parsed = [json.loads(frame.removeprefix("data: ")) for frame in frames if frame and "[DONE]" not in frame]
    assert [token for frame in parsed for token in frame.get("tokens", ())] == whole["tokens"]
    assert parsed[-1]["result"]["text"] == whole["text"]
    assert parsed[-1]["result"]["stats"]["num_tokens"] == 9


def test_a_prompt_cached_under_one_key_is_found_by_no_other():
    with page_service(0.0, keys=("a", "b")) as service, listening(service) as url, httpx.Client(base_url=url) as client:

        def cached(key):
            body = {"model": "toy", "prompt": "word " * 40, "max_tokens": 4}
            answer = client.post("/v1/completions", json=body, headers={"authorization": f"Bearer {key}"}).json()
            return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

        assert cached("a") == 0 and cached("a") == 39
        assert cached("b") == 0 and cached("b") == 39
