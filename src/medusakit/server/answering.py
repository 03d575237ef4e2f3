"""One request from its jobs to its answer: whole or as a stream, measured and logged; never left running."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from starlette.types import Receive

from medusakit.engine.events import GenerationResult
from medusakit.errors import DeadlineError, FormError, MedusaError
from medusakit.server import replies
from medusakit.server.asking import Asked
from medusakit.server.calling import ending
from medusakit.server.errors import Failure, internal, of_medusa
from medusakit.server.logs import LOGGER, log
from medusakit.server.metrics import Finished, Metrics
from medusakit.server.relay import Exchange, Told
from medusakit.server.replies import Document, Shape
from medusakit.server.spans import note_answer, note_times
from medusakit.server.sse import DONE, frame, gone
from medusakit.server.tracing import RequestSpan


class AnswerFailed(Exception):
    """An answer that did not come to its end."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(slots=True)
class _Progress:
    """Of one answer. Times are the clock's. num_told: tokens that came, also of an answer that has no end."""

    first_s: float | None = None
    last_s: float | None = None
    cached_tokens: int = 0
    num_told: int = 0
    result: GenerationResult | None = None

    @property
    def num_tokens(self) -> int:
        return self.num_told if self.result is None else self.result.stats.num_tokens


@dataclass(slots=True)
class Answering:
    """A request being answered. `end` must be called once, whatever happened."""

    request_id: str
    path: str
    asked: Asked
    exchange: Exchange
    shape: Shape
    metrics: Metrics
    clock: Callable[[], float]
    started_s: float
    streamed: bool = False
    span: RequestSpan | None = None
    outcome: str = "disconnected"  # until it is known better
    _answers: dict[int, _Progress] = field(default_factory=dict)

    async def whole(self, receive: Receive) -> Document | None:
        """The answer as one document; None if the client left before. Raises AnswerFailed."""
        collecting, leaving = asyncio.ensure_future(self._collect()), asyncio.ensure_future(gone(receive))
        try:
            await asyncio.wait([collecting, leaving], return_when=asyncio.FIRST_COMPLETED)
            return collecting.result() if collecting.done() else None
        finally:
            self.end()
            collecting.cancel()
            leaving.cancel()
            await asyncio.gather(collecting, leaving, return_exceptions=True)

    async def frames(self, *, include_usage: bool) -> AsyncIterator[bytes]:
        """Events of the stream. After the first byte a failure can only be told as one of them."""
        try:
            async for document in self._chunks(include_usage):
                yield frame(document)
            self.outcome = "ok"
            yield DONE
        except AnswerFailed as failed:
            yield frame(failed.failure.body())
        except Exception:
            LOGGER.exception("stream failed", extra={"fields": {"request_id": self.request_id}})
            self.outcome = "internal_error"
            yield frame(internal(self.request_id).body())

    def end(self) -> None:
        """Cancel what still runs, and say what became of the request."""
        self.exchange.cancel()
        for answer in self._answers.values():
            if answer.result is not None:
                self.metrics.on_finished(self._finished(answer, answer.result))
        summary = self._summary()
        log("request", **summary)
        if self.span is not None:
            self._trace(self.span, summary)

    def _trace(self, span: RequestSpan, summary: Document) -> None:
        """Of several answers, times are those of the first that ended."""
        ended = [answer for answer in self._answers.values() if answer.result is not None]
        note_answer(span, summary, [answer.result.stats for answer in ended if answer.result])
        if ended and ended[0].first_s is not None and ended[0].result is not None:
            finished = self._finished(ended[0], ended[0].result)
            note_times(span, self.started_s, finished)

    async def _collect(self) -> Document:
        async for told in self.exchange.told():
            self._note(told)
        results, cached = self._results()
        self.outcome = "ok"
        usage = replies.usage(self.asked.prompts, results, cached)
        return self.shape.whole(results, usage, replies.timings(results, cached))

    async def _chunks(self, include_usage: bool) -> AsyncIterator[Document]:
        extra: Document = {"usage": None} if include_usage else {}
        for index in range(len(self.exchange.tickets)):
            if (opening := self.shape.opening(index)) is not None:
                yield opening | extra
        async for told in self.exchange.told():
            self._note(told)
            for piece in self.shape.piece(told.index, told.update.events):
                yield piece | extra
            if told.update.result is not None:
                for last in self.shape.ending(told.index, told.update.result, told.update.cached_tokens):
                    yield last | extra
        if include_usage:
            results, cached = self._results()
            yield self.shape.usage_chunk(replies.usage(self.asked.prompts, results, cached))

    def _note(self, told: Told) -> None:
        """Raises AnswerFailed if this was the end of an answer, and not a good one."""
        answer, update = self._answers.setdefault(told.index, _Progress()), told.update
        answer.cached_tokens = update.cached_tokens
        if update.events:
            gap_s = None if answer.last_s is None else told.at_s - answer.last_s
            self.metrics.on_tokens(gap_s, (event.node for event in update.events if event.from_draft))
            answer.first_s = told.at_s if answer.first_s is None else answer.first_s
            answer.last_s = told.at_s
            answer.num_told += len(update.events)
        if update.error is not None:
            raise self._failed(update.error)
        if update.result is not None and update.result.finish_reason == "cancelled":
            self.outcome = "cancelled"
            raise AnswerFailed(Failure(503, "unavailable_error", "cancelled", "the request was cancelled"))
        answer.result = update.result or answer.result

    def _failed(self, error: MedusaError) -> AnswerFailed:
        self.outcome = error.code
        if isinstance(error, DeadlineError):
            return AnswerFailed(Failure(504, "server_error", error.code, error.message))
        if isinstance(error, FormError) and self.asked.calling is not None:
            return AnswerFailed(Failure(400, "invalid_request_error", error.code, error.message, "tools"))
        if (known := of_medusa(error)) is not None:
            return AnswerFailed(known)
        LOGGER.error("answer failed", exc_info=error, extra={"fields": {"request_id": self.request_id}})
        return AnswerFailed(internal(self.request_id))

    def _results(self) -> tuple[list[GenerationResult], list[int]]:
        answers = [self._answers[index] for index in range(len(self.exchange.tickets))]
        return [answer.result for answer in answers if answer.result], [answer.cached_tokens for answer in answers]

    def _finished(self, answer: _Progress, result: GenerationResult) -> Finished:
        if answer.first_s is None or answer.last_s is None:
            return Finished(None, None, self.clock() - self.started_s, None)
        num_after, ttft_s = result.stats.num_tokens - 1, answer.first_s - self.started_s
        tpot_s = (answer.last_s - answer.first_s) / num_after if num_after else None
        return Finished(ttft_s, tpot_s, answer.last_s - self.started_s, max(0.0, ttft_s - result.stats.prefill_s))

    def _summary(self) -> Document:
        results = [answer.result for answer in self._answers.values() if answer.result is not None]
        first = next((answer for answer in self._answers.values() if answer.result is not None), None)
        finished = self._finished(first, first.result) if first and first.result else Finished(None, None, 0.0, None)
        whole, steps = sum(one.stats.num_tokens for one in results), sum(one.stats.num_steps for one in results)
        return {
            "request_id": self.request_id,
            "path": self.path,
            "outcome": self.outcome,
            "stream": self.streamed,
            "prompt_tokens": sum(map(len, self.asked.prompts)),
            "cached_tokens": sum(answer.cached_tokens for answer in self._answers.values()),
            "tokens": sum(answer.num_tokens for answer in self._answers.values()),
            "tokens_per_step": round((whole - len(results)) / steps, 3) if steps else None,
            "finish_reasons": [ending(self.asked.calling, one) for one in results],
            "ttft_ms": _ms(finished.ttft_s),
            "tpot_ms": _ms(finished.tpot_s),
            "total_ms": _ms(self.clock() - self.started_s),
        }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 2)
