"""For benchmarks/serving.py: answers over HTTP against the library's, by every route, alone and in company."""

from __future__ import annotations

import argparse
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from served import CHAT, COMPLETIONS, GENERATE, Served

from medusakit.bench.equality import equality_summary, judge_difference
from medusakit.bench.workloads import load_suite
from medusakit.llm import LLM
from medusakit.settings import SamplingParams

ROWS = 8
TURN_OF_ROUTES = (GENERATE, CHAT, COMPLETIONS)


@dataclass(frozen=True, slots=True)
class Case:
    """One request. asked: in the library's words, but for messages or prompt, medusa and n (answers)."""

    path: str
    asked: dict[str, Any]

    @property
    def n(self) -> int:
        return int(self.asked.get("n", 1))

    @property
    def params(self) -> SamplingParams:
        others = ("messages", "prompt", "medusa", "n")
        given = {name: value for name, value in self.asked.items() if name not in others}
        return SamplingParams(**given | {"stop": tuple(given.get("stop", ()))})

    def ids(self, llm: LLM) -> list[int]:
        return llm.encode(self.asked.get("messages") or self.asked["prompt"], raw="prompt" in self.asked)

    def body(self) -> dict[str, Any]:
        """As its route takes it."""
        scored = {"logprobs": True, "top_logprobs": self.asked["logprobs"]} if "logprobs" in self.asked else {}
        return self.asked | (scored if self.path == CHAT else {})


@dataclass(slots=True)
class Said:
    """One answer: all ids, and the text."""

    ids: list[int] = field(default_factory=list)
    text: str = ""


def equality(options: argparse.Namespace) -> dict[str, Any]:
    """200 requests of a fixed mix, each compared with the library."""
    asked = cases(options.requests, options.seed)
    with Served(options.model, "--weights", options.weights, "--max-rows", str(ROWS)) as server:
        alone = [by_server(server, one) for one in asked]
        with ThreadPoolExecutor(ROWS) as pool, Noise(server, options.seed) as noise:
            together = list(pool.map(lambda one: by_server(server, one), asked))
        server.idle()
    with LLM.load(options.model, weights=options.weights) as llm:
        wanted = [by_library(llm, one) for one in asked]
        found = {"alone": compared(llm, asked, alone, wanted), "together": compared(llm, asked, together, wanted)}
    return {
        "requests": len(asked),
        "by_route": {path: sum(one.path == path for one in asked) for path in TURN_OF_ROUTES},
        "answers": sum(one.n for one in asked),
        "tokens": sum(len(said.ids) for answers in wanted for said in answers),
        "joined_and_left": noise.left,
        **found,
    }


def cases(count: int, seed: int) -> list[Case]:
    """The three routes in turn; greedy and sampled, penalties, biases, stops, filters, scores, two answers to one."""
    generator, questions = random.Random(seed), load_suite("mt-bench")
    kinds: list[Callable[[], dict[str, Any]]] = [
        dict,
        lambda: {"temperature": 0.8},
        lambda: {"temperature": 1.0, "top_p": 0.9, "top_k": 40},
        lambda: {"repetition_penalty": 1.2},
        lambda: {"temperature": 0.7, "presence_penalty": 0.5, "frequency_penalty": 0.3},
        lambda: {"stop": [generator.choice(["\n\n", ". ", " the "])]},
        lambda: {"temperature": 1.2, "min_p": 0.05, "logprobs": 3},
        lambda: {"medusa": {"budget": generator.choice([1, 3, 8])}},
        lambda: {"logit_bias": {generator.randrange(1000, 20000): 8.0 for _ in range(3)}},
        lambda: {"temperature": 1.0, "logit_bias": {generator.randrange(1000, 20000): 4.0}, "logprobs": 0},
    ]
    found = []
    for place in range(count):
        path, text = TURN_OF_ROUTES[place % 3], questions[place % len(questions)].turns[0]
        asked: dict[str, Any] = {"max_tokens": generator.randint(16, 48), "seed": generator.randrange(2**32)}
        asked |= {"prompt": text} if path == COMPLETIONS else {"messages": [{"role": "user", "content": text}]}
        asked |= {"n": 2} if path != GENERATE and generator.random() < 0.2 else {}
        found.append(Case(path, asked | kinds[place % len(kinds)]()))
    return found


def by_library(llm: LLM, case: Case) -> list[Said]:
    found = []
    for choice in range(case.n):
        with llm.stream_ids(case.ids(llm), replace(case.params, choice=choice)) as stream:
            ids = [event.token_id for event in stream]
            found.append(Said(ids, stream.result.text))
    return found


def by_server(server: Served, case: Case) -> list[Said]:
    """Of OpenAI's routes as streams, pieced together; of our own whole."""
    if case.path == GENERATE:
        whole = server.post(case.path, case.body())
        return [Said([token["token_id"] for token in whole["tokens"]], whole["text"])]
    said = [Said() for _ in range(case.n)]
    with server.stream(case.path, case.body(), detail=True) as documents:
        for document in documents:
            for choice in document["choices"]:
                one = said[choice["index"]]
                one.ids += [token["token_id"] for token in document.get("medusa", ())]
                one.text += choice["text"] if "text" in choice else choice["delta"].get("content", "")
    return said


def compared(llm: LLM, asked: list[Case], said: list[list[Said]], wanted: list[list[Said]]) -> dict[str, Any]:
    """Answers that are equal, tied or different, and texts that are not those of equal ids."""
    differences, texts = [], []
    for place, (case, ours, theirs) in enumerate(zip(asked, said, wanted, strict=True)):
        for choice, (left, right) in enumerate(zip(ours, theirs, strict=True)):
            where, params = f"{case.path}, request {place}, answer {choice}", replace(case.params, choice=choice)
            differences.append(judge_difference(llm, where, case.ids(llm), left.ids, right.ids, params))
            if left.ids == right.ids and left.text != right.text:
                texts.append({"where": where, "said": left.text, "wanted": right.text})
    return equality_summary(differences) | {"wrong_texts": texts}


class Noise:
    """Another client, whose requests join and are left before their end."""

    def __init__(self, server: Served, seed: int) -> None:
        self._server, self._random, self._stop = server, random.Random(seed), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.left = 0

    def __enter__(self) -> Noise:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._random.uniform(0.05, 0.5)):
            body = {"prompt": f"Count to {self._random.randint(3, 99)}:", "max_tokens": 200, "temperature": 1.0}
            with self._server.stream(GENERATE, body) as documents:
                for _ in zip(range(self._random.randint(1, 20)), documents, strict=False):
                    pass
            self.left += 1
