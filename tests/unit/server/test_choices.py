"""Drafters and trees of single requests: all together in a batch, over HTTP, and each answer is plain decoding's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx2 as httpx
import pytest

from engine_fakes import VOCAB, LetterTokenizer
from medusakit.engine import loading
from medusakit.engine.choices import MAX_KEPT, Choices
from medusakit.engine.engine import Engine
from medusakit.engine.jobs import SchedulerSettings
from medusakit.engine.scheduler import Scheduler
from medusakit.engine.wishes import Wishes
from medusakit.errors import UsageError
from medusakit.llm import LLM
from medusakit.models.resolve import ResolvedModel
from medusakit.runtimes.reference import random_reference
from medusakit.runtimes.reference_source import random_source
from medusakit.server.keys import Keyring
from medusakit.server.service import Drafting, Options, Service, Serving
from medusakit.tree.cost import StepCost
from server_fakes import card_of, listening

PATHS = [[0], [1], [0, 0], [0, 1], [1, 0], [0, 0, 0]]
DRAFTERS = [None, "hybrid", "suffix", "recycling"]
TREES = [None, "dynamic", "2x2", "1x3", PATHS]
CHOSEN = [{"drafter": drafter, "tree": tree} for drafter in DRAFTERS for tree in TREES]


@pytest.fixture
def parts(monkeypatch, tmp_path):
    """A small random model that no heads fit; more nodes cost nothing."""
    facts = {
        "resolve": ResolvedModel("toy", tmp_path / "toy.gguf", "gguf"),
        "open_weights": random_source(0, VOCAB),
        "load_tokenizer": LetterTokenizer(),
        "load_onnx": random_reference(0, VOCAB, context_length=96, max_rows=8),
        "remembered_cost": StepCost.single({1: 1.0, 64: 1.0}),
        "find_heads": None,
    }
    for name, fact in facts.items():
        monkeypatch.setattr(loading, name, lambda *_, fact=fact, **__: fact)
    return LLM.load("toy", max_rows=8).parts


@dataclass
class Held:
    engine: Engine


@pytest.fixture
def client(parts):
    service = Service(Options(), Keyring(()))
    engine = Engine(parts.runtime, parts.tokenizer, parts.speculation.controller)
    scheduler = Scheduler(Held(engine), SchedulerSettings(max_rows=8), on_step=service.metrics.on_step)
    scheduler.start()
    drafting = Drafting(parts.speculation, "hybrid", "", Choices(parts, None, Wishes()))
    service.opened(Serving(scheduler, parts.tokenizer, card_of(parts.runtime), drafting))
    with listening(service) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client
    scheduler.close()


def ask(client, medusa, **changes):
    body = {"prompt": [3, 1, 4, 1, 5], "max_tokens": 60, "medusa": medusa} | changes
    return client.post("/medusa/generate", json=body)


@pytest.mark.parametrize("changes", [{}, {"temperature": 0.9, "seed": 5}], ids=str)
def test_rows_with_different_drafters_and_trees_say_what_plain_decoding_says(client, changes):
    plain = ask(client, {"off": True}, **changes).json()
    with ThreadPoolExecutor(8) as pool:
        answers = [one.json() for one in pool.map(lambda chosen: ask(client, chosen, **changes), CHOSEN)]
    expected = [token["token_id"] for token in plain["tokens"]]
    assert [[token["token_id"] for token in one["tokens"]] for one in answers] == [expected] * len(CHOSEN)
    assert plain["timings"]["draft_n"] == 0
    for chosen, one in zip(CHOSEN, answers, strict=True):
        if chosen["tree"] not in (None, "dynamic"):  # those may rest or grow nothing, by times that a busy machine has
            assert one["timings"]["draft_n"] > 0, chosen
    given = answers[CHOSEN.index({"drafter": "suffix", "tree": PATHS})]
    assert given["stats"]["nodes_per_step"] > len(PATHS)  # all of its nodes and the root, but for the last step


def test_greedy_text_that_repeats_is_drafted_by_what_was_asked(client):
    one = ask(client, {"drafter": "suffix"}).json()
    assert one["timings"]["draft_n_accepted"] > 0


@pytest.mark.parametrize(
    ("medusa", "code", "param", "words"),
    [
        ({"drafter": "medusa"}, "invalid_value", "medusa.drafter", "hybrid, suffix, recycling"),
        ({"drafter": "eagle"}, "invalid_value", "medusa.drafter", "is not there"),
        ({"tree": "static"}, "invalid_value", "medusa.tree", "needs heads"),
        ({"tree": "9x9"}, "invalid_value", "medusa.tree", "1024 nodes"),
        ({"tree": [[1], [0, 0]]}, "invalid_value", "medusa.tree", r"(0, 0)"),
        ({"tree": [[0] * (n + 1) for n in range(60)]}, "invalid_value", "medusa.tree", "60 deep"),
        ({"tree": [[0], [0]]}, "invalid_value", "medusa.tree", "repeated"),
        ({"tree": []}, "invalid_value", "medusa.tree", ""),
        ({"tree": [[-1]]}, "invalid_value", "medusa.tree.0.0", ""),
        ({"tree": "wide"}, "invalid_value", "medusa.tree", "or: Input should be a valid list"),
    ],
)  # fmt: skip
def test_refusals(client, medusa, code, param, words):
    response = ask(client, medusa)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, code)
    assert error["param"].startswith(param)
    assert words in error["message"]


def test_the_schema_lists_them(client):
    fields = client.get("/openapi.json").json()["components"]["schemas"]["Medusa"]["properties"]
    assert set(fields) == {"off", "budget", "acceptance", "drafter", "tree"}


def test_each_is_built_once_and_few_are_kept(parts):
    choices = Choices(parts, None, Wishes())
    assert choices.names == ("hybrid", "suffix", "recycling")
    assert choices.plan("suffix", "2x2") is choices.plan("suffix", "2x2")
    assert choices.plan("suffix", PATHS) is choices.plan("suffix", [tuple(path) for path in PATHS])
    assert choices.plan("suffix", "2x2").drafter is choices.plan("suffix", PATHS).drafter
    for number in range(MAX_KEPT + 5):
        depth, rank = divmod(number, VOCAB - 1)
        choices.plan(None, [[0] * place for place in range(1, depth + 2)] + [[rank + 1]])
    assert len(choices._plans) == MAX_KEPT


def test_no_choice_where_trees_may_change_the_output(parts):
    from dataclasses import replace

    with pytest.raises(UsageError, match="may change the output"):
        Choices(replace(parts, withheld=True), None, Wishes()).plan("suffix", None)
    with pytest.raises(UsageError, match="nothing drafts|without drafting"):
        Choices(replace(parts, cost=None), None, Wishes()).plan(None, "2x2")
