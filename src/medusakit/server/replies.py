"""Answers in OpenAI's shapes, whole or in chunks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from medusakit.engine.document import token
from medusakit.engine.events import GenerationResult, TokenEvent, TokenScore
from medusakit.text.stream import TextStream
from medusakit.text.tokenizer import Tokenizer

Document = dict[str, Any]
NEVER = -9999.0  # what OpenAI sends for a probability of 0, as JSON knows no infinity


@dataclass(frozen=True, slots=True)
class Head:
    """What every document of one answer begins with. detail: chunks carry the provenance of their tokens."""

    id: str
    created: int
    model: str
    fingerprint: str
    tokenizer: Tokenizer = field(repr=False)
    want_logprobs: bool = False
    detail: bool = False

    def document(self, kind: str, choices: list[Document]) -> Document:
        about = {"id": self.id, "object": kind, "created": self.created, "model": self.model}
        return about | {"system_fingerprint": self.fingerprint, "choices": choices}


class Shape(Protocol):
    """One of OpenAI's ways to answer."""

    def opening(self, index: int) -> Document | None:
        """The chunk before any token of an answer."""
        ...

    def piece(self, index: int, events: Sequence[TokenEvent]) -> Sequence[Document]:
        """The chunks of a step; mostly one, and none if nothing can be said yet."""
        ...

    def ending(self, index: int, result: GenerationResult, cached_tokens: int) -> Sequence[Document]:
        """What was held back, and the chunk that says why an answer ended."""
        ...

    def usage_chunk(self, usage: Document) -> Document: ...

    def whole(self, results: Sequence[GenerationResult], usage: Document, timings: Document) -> Document: ...


class CompletionShape:
    """prompts: their token ids where they are asked back (echo)."""

    KIND = "text_completion"

    def __init__(self, head: Head, prompts: Sequence[Sequence[int]] = (), num_choices: int = 1) -> None:
        self._head, self._prompts, self._num_choices = head, prompts, num_choices
        self._offsets: dict[int, int] = {}

    def opening(self, index: int) -> Document | None:
        prompt = self._prompt(index)
        return self._chunk(index, prompt) if prompt else None

    def piece(self, index: int, events: Sequence[TokenEvent]) -> list[Document]:
        text = text_of(events)
        if not (text or (events and (self._head.detail or self._head.want_logprobs))):
            return []
        offset = self._offsets.get(index, len(self._prompt(index)))
        self._offsets[index] = offset + len(text)
        logprobs = self._logprobs(events, offset)
        return [self._chunk(index, text, logprobs=logprobs) | detail(self._head, events)]

    def ending(self, index: int, result: GenerationResult, cached_tokens: int) -> list[Document]:
        return [self._chunk(index, "", result.finish_reason) | {"timings": timings([result], [cached_tokens])}]

    def usage_chunk(self, usage: Document) -> Document:
        return self._head.document(self.KIND, []) | {"usage": usage}

    def whole(self, results: Sequence[GenerationResult], usage: Document, timings: Document) -> Document:
        choices = []
        for index, result in enumerate(results):
            prompt = self._prompt(index)
            logprobs = self._logprobs(result.events, len(prompt))
            if logprobs and result.prompt_scores:
                logprobs = self._before(index, result.prompt_scores, logprobs)
            text = prompt + result.text
            choices.append({"index": index, "text": text, "logprobs": logprobs, "finish_reason": result.finish_reason})
        return self._head.document(self.KIND, choices) | {"usage": usage, "timings": timings}

    def _prompt(self, index: int) -> str:
        return self._head.tokenizer.decode(self._prompts[index // self._num_choices]) if self._prompts else ""

    def _chunk(self, index: int, text: str, reason: str | None = None, logprobs: Document | None = None) -> Document:
        choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}
        return self._head.document(self.KIND, [choice])

    def _logprobs(self, events: Sequence[TokenEvent], offset: int) -> Document | None:
        if not self._head.want_logprobs:
            return None
        found: Document = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for event in events:
            self._add(found, event.token_id, event, offset)
            offset += len(event.text)
        return found

    def _before(self, index: int, scores: Sequence[TokenScore], logprobs: Document) -> Document:
        """The prompt's tokens before those of the answer. Nothing came before its first, so that has no score."""
        ids, tokenizer = self._prompts[index // self._num_choices], self._head.tokenizer
        found: Document = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        text, offset = TextStream(tokenizer), 0
        for place, token_id in enumerate(ids):
            self._add(found, token_id, scores[place - 1] if place else None, offset)
            offset += len(text.push(token_id).text)
        return {name: values + logprobs[name] for name, values in found.items()}

    def _add(self, found: Document, token_id: int, score: TokenScore | TokenEvent | None, offset: int) -> None:
        tokenizer = self._head.tokenizer
        spelt = _spelling(tokenizer, token_id)
        found["tokens"].append(spelt)
        found["token_logprobs"].append(None if score is None else _finite(score.logprob))
        top = None
        if score is not None and score.top:
            top = {_spelling(tokenizer, other): _finite(logprob) for other, logprob in reversed(score.top)}
            top[spelt] = _finite(score.logprob)
        found["top_logprobs"].append(top)
        found["text_offset"].append(offset)


def usage(prompts: Sequence[Sequence[int]], results: Sequence[GenerationResult], cached: Sequence[int]) -> Document:
    """Each prompt counts once, however many answers it gets."""
    num_prompt, num_tokens = sum(map(len, prompts)), sum(result.stats.num_tokens for result in results)
    num_cached = min(num_prompt, max(cached, default=0) if len(prompts) == 1 else sum(cached))
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_tokens,
        "total_tokens": num_prompt + num_tokens,
        "prompt_tokens_details": {"cached_tokens": num_cached},
    }


def timings(results: Sequence[GenerationResult], cached: Sequence[int]) -> Document:
    """llama.cpp's words. draft_n counts drafted nodes verified, draft_rounds verify passes."""
    stats = [result.stats for result in results]
    prompt_n, prompt_s = sum(one.num_prompt_tokens for one in stats), sum(one.prefill_s for one in stats)
    decoded, decode_s = sum(max(0, one.num_tokens - 1) for one in stats), sum(one.decode_s for one in stats)
    rounds = sum(one.num_steps for one in stats)
    return {
        "cache_n": sum(cached),
        "prompt_n": prompt_n - sum(cached),
        "prompt_ms": 1000 * prompt_s,
        "prompt_per_second": (prompt_n - sum(cached)) / prompt_s if prompt_s > 0 else 0.0,
        "predicted_n": sum(one.num_tokens for one in stats),
        "predicted_ms": 1000 * decode_s,
        "predicted_per_second": decoded / decode_s if decode_s > 0 else 0.0,
        "draft_n": sum(one.num_nodes - one.num_steps for one in stats),
        "draft_n_accepted": sum(sum(one.accepted_by_depth) for one in stats),
        "draft_kind": "medusa",
        "draft_rounds": rounds,
        "tokens_per_step": decoded / rounds if rounds else 1.0,
    }


def detail(head: Head, events: Sequence[TokenEvent]) -> Document:
    return {"medusa": [token(event) for event in events]} if head.detail else {}


def text_of(events: Sequence[TokenEvent]) -> str:
    return "".join(event.text for event in events)


def entry(tokenizer: Tokenizer, token_id: int, logprob: float) -> Document:
    data = _bytes(tokenizer, token_id)
    return {"token": data.decode("utf-8", "replace"), "logprob": _finite(logprob), "bytes": list(data)}


def _spelling(tokenizer: Tokenizer, token_id: int) -> str:
    return _bytes(tokenizer, token_id).decode("utf-8", "replace")


def _bytes(tokenizer: Tokenizer, token_id: int) -> bytes:
    """A model's scores may be wider than its vocabulary: ids beyond have no spelling."""
    return tokenizer.token_bytes(token_id) if token_id < tokenizer.vocab_size else b""


def _finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else NEVER
