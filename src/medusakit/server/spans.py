"""What a request's span holds: the semantic conventions' names for what was asked and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from medusakit.engine.events import GenerationStats
from medusakit.server.asking import Asked
from medusakit.server.metrics import Finished
from medusakit.server.tracing import RequestSpan


def note_request(span: RequestSpan, asked: Asked, model: str, response_id: str) -> None:
    """The model, and how to sample; the prompt only by its length."""
    params = asked.params
    span.of_model(model)
    span.note(
        {
            "gen_ai.request.model": model,
            "gen_ai.response.model": model,
            "gen_ai.response.id": response_id,
            "gen_ai.request.max_tokens": params.max_tokens,
            "gen_ai.request.temperature": params.temperature,
            "gen_ai.request.top_p": params.top_p,
            "gen_ai.request.top_k": params.top_k or None,
            "gen_ai.request.seed": params.seed,
            "gen_ai.request.choice.count": asked.num_choices,
            "gen_ai.usage.input_tokens": sum(map(len, asked.prompts)),
        }
    )


def note_answer(span: RequestSpan, summary: Mapping[str, Any], stats: Sequence[GenerationStats]) -> None:
    """summary: the log's line. stats: of the answers that came to their end."""
    span.note(
        {
            "gen_ai.usage.output_tokens": summary["tokens"],
            "gen_ai.usage.cache_read.input_tokens": summary["cached_tokens"],
            "gen_ai.response.finish_reasons": summary["finish_reasons"],
            "medusa.outcome": summary["outcome"],
            "medusa.tokens_per_step": summary["tokens_per_step"],
            "medusa.steps": sum(one.num_steps for one in stats),
            "medusa.draft.tokens": sum(one.num_nodes - one.num_steps for one in stats),
            "medusa.draft.accepted_tokens": sum(sum(one.accepted_by_depth) for one in stats),
        }
    )
    if summary["outcome"] != "ok":
        span.failed(summary["outcome"])


def note_times(span: RequestSpan, started_s: float, finished: Finished) -> None:
    """Seconds, and the first token as an event at its moment. started_s: of the server's clock."""
    span.note(
        {
            "medusa.queue_s": finished.queue_s,
            "medusa.time_to_first_token_s": finished.ttft_s,
            "medusa.time_per_output_token_s": finished.tpot_s,
        }
    )
    if finished.ttft_s is not None:
        span.event("first_token", started_s + finished.ttft_s)
