"""Chat answers in OpenAI's shape: what is said and which functions are called, whole or in chunks."""

from __future__ import annotations

import secrets
import string
from collections.abc import Sequence

from medusakit.engine.events import GenerationResult, TokenEvent
from medusakit.server.calling import finish_reason, reader_of
from medusakit.server.replies import Document, Head, detail, entry, text_of, timings
from medusakit.text.call_formats import CallFormat
from medusakit.text.call_reader import Argued, Called, CallReader, Part, Said
from medusakit.verify.calls import Calling


class ChatShape:
    """calling: what the answer may call; None: it is text."""

    KIND, CHUNK = "chat.completion", "chat.completion.chunk"

    def __init__(self, head: Head, calling: Calling | None = None) -> None:
        self._head, self._calling = head, calling
        self._readers: dict[int, CallReader] = {}
        self._ids: set[str] = set()

    def opening(self, index: int) -> Document:
        return self._chunk(index, {"role": "assistant", "content": None if self._calling else ""})

    def piece(self, index: int, events: Sequence[TokenEvent]) -> list[Document]:
        logprobs = self._logprobs(events)
        deltas = [self._delta(part) for part in self._parts(index, text_of(events))]
        if not deltas and ((self._head.detail and events) or (logprobs and logprobs["content"])):
            deltas = [{"content": ""}]
        first = [self._chunk(index, delta, logprobs=logprobs) | detail(self._head, events) for delta in deltas[:1]]
        return first + [self._chunk(index, delta) for delta in deltas[1:]]

    def ending(self, index: int, result: GenerationResult, cached_tokens: int) -> list[Document]:
        reader = self._reader(index)
        rest = [self._chunk(index, self._delta(part)) for part in (reader.end() if reader else ())]
        last = self._chunk(index, {}, finish_reason(result, reader)) | {"timings": timings([result], [cached_tokens])}
        return [*rest, last]

    def usage_chunk(self, usage: Document) -> Document:
        return self._head.document(self.CHUNK, []) | {"usage": usage}

    def whole(self, results: Sequence[GenerationResult], usage: Document, timings: Document) -> Document:
        choices = [self._choice(index, result) for index, result in enumerate(results)]
        return self._head.document(self.KIND, choices) | {"usage": usage, "timings": timings}

    def _choice(self, index: int, result: GenerationResult) -> Document:
        reader = self._reader(index)
        parts = self._parts(index, result.text) + (reader.end() if reader else [])
        said = "".join(part.text for part in parts if isinstance(part, Said))
        calls: list[Document] = []
        for part in parts:
            if isinstance(part, Called):
                calls.append(self._call(part))
            elif isinstance(part, Argued):
                calls[part.index]["function"]["arguments"] += part.text
        message: Document = {"role": "assistant", "content": said or None if calls else said, "refusal": None}
        return {
            "index": index,
            "message": message | ({"tool_calls": calls} if calls else {}),
            "logprobs": self._logprobs(result.events),
            "finish_reason": finish_reason(result, reader),
        }

    def _reader(self, index: int) -> CallReader | None:
        """Of one answer. None: it is text."""
        if self._calling is None:
            return None
        if index not in self._readers:
            self._readers[index] = reader_of(self._calling)
        return self._readers[index]

    def _parts(self, index: int, text: str) -> list[Part]:
        reader = self._reader(index)
        if reader is not None:
            return reader.feed(text)
        return [Said(text)] if text else []

    def _delta(self, part: Part) -> Document:
        if isinstance(part, Said):
            return {"content": part.text}
        if isinstance(part, Called):
            return {"tool_calls": [{"index": part.index, **self._call(part)}]}
        return {"tool_calls": [{"index": part.index, "function": {"arguments": part.text}}]}

    def _call(self, part: Called) -> Document:
        assert self._calling is not None
        function = {"name": part.function, "arguments": ""}
        return {"id": self._id(part, self._calling.form), "type": "function", "function": function}

    def _id(self, part: Called, form: CallFormat) -> str:
        """The model's own, unless it wrote one twice."""
        found = part.id
        while found is None or found in self._ids:
            found = _fresh_id(form)
        self._ids.add(found)
        return found

    def _chunk(
        self, index: int, delta: Document, reason: str | None = None, logprobs: Document | None = None
    ) -> Document:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return self._head.document(self.CHUNK, [choice])

    def _logprobs(self, events: Sequence[TokenEvent]) -> Document | None:
        """The token that ends an answer is not part of it."""
        if not self._head.want_logprobs:
            return None
        tokenizer = self._head.tokenizer
        entries = []
        for event in events:
            if event.token_id in tokenizer.eos_ids and not event.text:
                continue
            top = [entry(tokenizer, token_id, logprob) for token_id, logprob in event.top]
            entries.append(entry(tokenizer, event.token_id, event.logprob) | {"top_logprobs": top})
        return {"content": entries, "refusal": None}


def _fresh_id(form: CallFormat) -> str:
    if form.id_length is None:
        return f"call_{secrets.token_hex(12)}"
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(form.id_length))
