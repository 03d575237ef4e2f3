"""Our own way to answer: every token with its provenance, counts and times of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from medusakit.engine.document import generation, token
from medusakit.engine.events import GenerationResult, TokenEvent
from medusakit.server.replies import Document, Head


class NativeShape:
    """Chunks: {"tokens": [...]} a step, then {"result": {...}} without them."""

    def __init__(self, head: Head) -> None:
        self._head = head

    def opening(self, index: int) -> Document | None:
        return None

    def piece(self, index: int, events: Sequence[TokenEvent]) -> list[Document]:
        return [{"id": self._head.id, "tokens": [token(event) for event in events]}] if events else []

    def ending(self, index: int, result: GenerationResult, cached_tokens: int) -> list[Document]:
        told = generation(replace(result, events=()))
        del told["tokens"]
        return [{"id": self._head.id, "result": told | {"cached_tokens": cached_tokens}}]

    def usage_chunk(self, usage: Document) -> Document:
        return {"id": self._head.id, "usage": usage}

    def whole(self, results: Sequence[GenerationResult], usage: Document, timings: Document) -> Document:
        about = {"id": self._head.id, "model": self._head.model, "system_fingerprint": self._head.fingerprint}
        return about | generation(results[0]) | {"usage": usage, "timings": timings}
