"""Trained heads in use: whatever drafter and tree an answer is given, from Python or over HTTP, alone or beside others,
in a form or free, while heads are swapped: it is plain decoding's.

The model is tiny and random, the heads are trained on its answers for a moment; engine, scheduler and server are whole.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from medusakit.artifact.io import MANIFEST, TENSORS
from medusakit.drafters.hybrid.drafter import HybridDrafter
from medusakit.drafters.registry import DRAFT_MODEL, FAMILIES
from medusakit.engine.choices import LEAST_STATIC
from medusakit.engine.wishes import Wishes
from medusakit.errors import UsageError
from medusakit.settings import SamplingParams
from medusakit.tree.cost import StepCost
from server_fakes import listening
from toy_llm import ROWS, toy_heads, toy_llm, toy_server, twin

pytestmark = pytest.mark.timeout(900)  # seconds of work, but on a machine with much else to do they are minutes
PROMPT, LENGTH = "Hello there", 48
PATHS = [[0], [1], [0, 0], [0, 1], [1, 0], [0, 0, 0]]
TREES = [None, "dynamic", "static", "2x2", PATHS]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[a-z]{1,6}$"}, "colour": {"enum": ["red", "green"]}},
    "required": ["name", "colour"],
    "additionalProperties": False,
}
WAYS = {
    "greedy": {},
    "sampled": {"temperature": 0.9, "seed": 5},
    "narrow": {"temperature": 0.7, "top_k": 20, "seed": 6},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("heads")


BOTH = ("medusa", "hydra")  # the others are drafters of the same kinds
ALL = [pytest.param(name, marks=() if name in BOTH else pytest.mark.slow) for name in FAMILIES]


@pytest.fixture(scope="module", params=ALL)
def family(request: pytest.FixtureRequest, folder: Path) -> tuple[str, Path]:
    return request.param, toy_heads(folder, request.param)


@pytest.fixture(scope="module")
def both(folder: Path) -> dict[str, Path]:
    return {name: toy_heads(folder, name) for name in BOTH}


def choices(family: str) -> list[dict[str, Any]]:
    """Drafters that such a model has, with trees; only heads have a calibrated one."""
    pairs: list[tuple[str | None, Any]] = [(drafter, tree) for drafter in (None, family) for tree in TREES]
    pairs += [("hybrid", "static"), ("hybrid", PATHS), ("suffix", PATHS), ("recycling", "2x2")]
    pairs += [(DRAFT_MODEL, tree) for tree in (None, "2x2", PATHS)]
    return [{"drafter": drafter, "tree": tree} for drafter, tree in pairs]


@pytest.mark.parametrize("way", ["greedy", "sampled"])
def test_from_python_alone(family: tuple[str, Path], way: str) -> None:
    name, heads = family
    llm = toy_llm(heads, second=twin())
    params = SamplingParams(max_tokens=LENGTH, **WAYS[way])
    plain = llm.generate(PROMPT, params, speculation=False)
    accepted = {}
    for chosen in choices(name):
        found = llm.generate(PROMPT, params, **chosen)
        assert found.token_ids == plain.token_ids, chosen
        assert chosen["tree"] in (None, "dynamic") or found.stats.nodes_per_step > 1.5, chosen
        accepted[str(chosen)] = sum(found.stats.accepted_by_depth)
    assert llm.runtime.rows == ()
    assert accepted[str({"drafter": name, "tree": "static"})] > 0, "the heads were never right, so nothing was tested"
    assert accepted[str({"drafter": DRAFT_MODEL, "tree": "2x2"})] > LENGTH / 3


@pytest.mark.parametrize("way", ["greedy", "narrow"])
def test_in_a_form(family: tuple[str, Path], way: str) -> None:
    pytest.importorskip("llguidance")
    name, heads = family
    llm = toy_llm(heads, second=twin())
    params = SamplingParams(max_tokens=LENGTH, grammar=llm.grammars.json_schema(SCHEMA), **WAYS[way])
    plain = llm.generate(PROMPT, params, speculation=False)
    assert plain.finish_reason == "stop" and set(json.loads(plain.text)) == {"name", "colour"}
    for chosen in choices(name):
        found = llm.generate(PROMPT, params, **chosen)
        assert (found.token_ids, found.finish_reason) == (plain.token_ids, "stop"), chosen
    assert llm.generate(PROMPT, params, drafter=name, tree="static").stats.tau > 1.5


def test_what_python_refuses(both: dict[str, Path]) -> None:
    llm = toy_llm(both["medusa"])
    for chosen, words in [
        ({"drafter": "hydra"}, "of this model: hybrid, medusa, suffix, recycling"),
        ({"drafter": "suffix", "tree": "static"}, "needs heads"),
        ({"tree": [[0], [0, 0], [0, 0, 0], [0, 0, 0, 0]], "drafter": "medusa"}, "4 deep, but medusa guesses 3"),
        ({"tree": "wide"}, "neither auto"),
        ({"tree": "2x2", "speculation": False}, "which is off"),
    ]:
        with pytest.raises(UsageError, match=words):
            llm.generate(PROMPT, **chosen)  # type: ignore[arg-type]
    assert llm.runtime.rows == ()


def test_what_is_asked_for_is_drafted_whole_though_nothing_pays(both: dict[str, Path]) -> None:
    dear = StepCost.single({1: 1.0, 2: 2.0, 64: 64.0})
    llm = toy_llm(both["medusa"], cost=dear)
    budgets = [llm.choices.plan(None, tree).budget for tree in ("static", "2x2", PATHS)]
    assert budgets == [LEAST_STATIC, 7, len(PATHS) + 1]
    for wishes, num_nodes in [(Wishes(tree="2x2"), 7), (Wishes(tree="2x2", budget=5), 5), (Wishes(tree="static"), 1)]:
        assert toy_llm(both["medusa"], wishes, cost=dear).parts.speculation.topology.num_nodes == num_nodes


@pytest.fixture
def client(both: dict[str, Path]) -> Iterator[httpx.Client]:
    llm = toy_llm(both["medusa"], second=twin())
    with toy_server(llm) as service, listening(service) as url, httpx.Client(base_url=url, timeout=300) as client:
        yield client


def ask(client: httpx.Client, medusa: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    body = {"prompt": PROMPT, "max_tokens": LENGTH, "medusa": medusa} | changes
    response = client.post("/medusa/generate", json=body)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def ids(answer: dict[str, Any]) -> list[int]:
    return [token["token_id"] for token in answer["tokens"]]


FORM = {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}


@pytest.mark.parametrize("changes", [{}, WAYS["narrow"], FORM | WAYS["sampled"]], ids=["greedy", "narrow", "form"])
def test_over_http_alone_and_in_a_batch(client: httpx.Client, changes: dict[str, Any]) -> None:
    if "response_format" in changes:
        pytest.importorskip("llguidance")
    plain, wished = ask(client, {"off": True}, changes), choices("medusa")
    with ThreadPoolExecutor(ROWS) as pool:
        together = list(pool.map(lambda chosen: ask(client, chosen, changes), wished))
    alone = [ask(client, chosen, changes) for chosen in wished]
    for chosen, *answers in zip(wished, together, alone, strict=True):
        assert [ids(one) for one in answers] == [ids(plain)] * 2, chosen
        if chosen["tree"] not in (None, "dynamic"):  # those may rest or grow nothing, by times that a busy machine has
            assert all(one["timings"]["draft_n"] > 0 for one in answers), chosen
    assert plain["timings"]["draft_n"] == 0


STREAMS = 6
SWAPS = 16  # at least, while streams run
LIMIT_S = 150


def stream(url: str, body: dict[str, Any]) -> tuple[list[int], str]:
    """The token ids of a stream, and its last line. Raises what the stream says went wrong."""
    found, last = [], ""
    with httpx.stream("POST", f"{url}/medusa/generate", json=body | {"stream": True}, timeout=LIMIT_S) as response:
        assert response.status_code == 200, response.read()
        for line in response.iter_lines():
            if line.startswith("data: {"):
                event = json.loads(line.removeprefix("data: "))
                assert "error" not in event, event
                found += [token["token_id"] for token in event.get("tokens", [])]
            last = line or last
    return found, last


def broken(folder: Path, heads: Path) -> tuple[str, str]:
    """Copies of heads: of another model, and with tensors that are cut short."""
    foreign, cut = folder / "foreign", folder / "cut"
    for copy in (foreign, cut):
        shutil.copytree(heads, copy, dirs_exist_ok=True)
    manifest = json.loads((foreign / MANIFEST).read_text())
    manifest["backbone"]["fingerprint"] = "0" * 64
    (foreign / MANIFEST).write_text(json.dumps(manifest))
    (cut / TENSORS).write_bytes((cut / TENSORS).read_bytes()[:-100])
    return str(foreign), str(cut)


def swap_while(client: httpx.Client, changes: Iterator[tuple[str, Any, int]], running: list[Future[Any]]) -> int:
    """How many changes were made while any of the streams ran. Each must end with the status that is expected."""
    count = 0
    while not all(one.done() for one in running):
        path, body, expected = next(changes)
        assert client.post(f"/admin/heads{path}", json=body).status_code == expected, (path, body)
        count += not all(one.done() for one in running)
    return count


def test_heads_swapped_and_rolled_back_under_streams(
    both: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    propose = HybridDrafter.propose

    def spied(drafter: HybridDrafter, *arguments: Any) -> Any:
        asked.append(drafter)
        return propose(drafter, *arguments)

    monkeypatch.setattr(HybridDrafter, "propose", spied)
    bodies: list[dict[str, Any]] = [
        {
            "prompt": f"{PROMPT} {place}",
            "max_tokens": 200,
            "ignore_eos": True,
            "seed": place,
            "temperature": place % 3 / 2,
        }
        for place in range(STREAMS)
    ]
    bodies[-1] |= {"medusa": {"tree": PATHS}}
    good, other = (str(both[name]) for name in ("medusa", "hydra"))
    foreign, cut = broken(tmp_path, both["hydra"])
    rollback = ("/rollback", None, 200)
    changes = cycle([("", {"path": other}, 200), ("", {"path": foreign}, 409), rollback, ("", {"path": "none"}, 200),
                     ("", {"path": cut}, 409), ("", {"path": good}, 200), rollback, rollback])  # fmt: skip
    llm = toy_llm(both["medusa"], Wishes(budget=8))  # no guard, which the time of a busy machine would move
    with toy_server(llm, max_rows=4) as service, listening(service) as url, httpx.Client(base_url=url) as client:
        client.timeout = httpx.Timeout(LIMIT_S)
        plain = [ids(ask(client, {"off": True}, body)) for body in (one | {"medusa": {"off": True}} for one in bodies)]
        count, end = 0, time.monotonic() + LIMIT_S
        with ThreadPoolExecutor(STREAMS) as pool:
            while count < SWAPS:
                assert time.monotonic() < end, f"only {count} swaps in {LIMIT_S} s"
                running = [pool.submit(stream, url, body) for body in bodies]
                count += swap_while(client, changes, running)
                assert [one.result() for one in running] == [(wanted, "data: [DONE]") for wanted in plain]
        assert len({id(drafter) for drafter in asked}) > 4, "the streams were drafted by few of the heads"
        client.post("/admin/heads", json={"path": other}).raise_for_status()
        refused = client.post("/admin/heads", json={"path": foreign})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "artifact_mismatch")
        asked.clear()
        assert ids(ask(client, {}, bodies[0] | {"medusa": {}})) == plain[0]
        serving = service.serving()
        assert serving.drafting is not None and {id(one) for one in asked} == {id(serving.drafting.parts.drafter)}
        heads = json.loads((both["hydra"] / MANIFEST).read_text())["files"][TENSORS]
        assert client.get("/v1/state").json()["model"]["heads"] == heads
        over_http = ask(client, {"drafter": "hydra", "tree": "static"}, {})
        totals = service.serving().scheduler.snapshot().totals
    assert totals.finished.keys() == {"length"}, "a stream that ended otherwise"
    llm = toy_llm(both["hydra"], Wishes(budget=8))
    here = llm.generate(PROMPT, SamplingParams(max_tokens=LENGTH), raw=True, drafter="hydra", tree="static")
    assert (ids(over_http), over_http["timings"]["draft_n_accepted"]) == (
        list(here.token_ids), sum(here.stats.accepted_by_depth),
    )  # fmt: skip
