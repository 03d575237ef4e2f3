"""From a request to the scheduler's jobs: token ids, parameters, limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from medusakit.engine.jobs import Job
from medusakit.engine.plan import Plan
from medusakit.engine.prompt import check_messages, token_ids
from medusakit.errors import TokenizerError, UsageError
from medusakit.server.calling import calling_of, ending, grammar_of, with_thought
from medusakit.server.errors import bad_request
from medusakit.server.keys import Tenant
from medusakit.server.messages import Message, plain_messages
from medusakit.server.service import Options, Serving
from medusakit.server.wire import (
    ChatRequest,
    CompletionRequest,
    GenerateRequest,
    Medusa,
    Request,
    ResponseFormat,
)
from medusakit.settings import SamplingParams
from medusakit.text.chat import chat_ids
from medusakit.verify.calls import Calling
from medusakit.verify.grammar import Grammar

MAX_PROMPTS = 64
MAX_STOPS = 16
MAX_STOP_CHARS = 1000  # a table as long is made for every answer, on the thread that all answers share
_SAME_NAMES = (
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed",
    "ignore_eos",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """prompts: token ids of each. num_choices: answers to each; answer i belongs to prompt i // num_choices. calling:
    the functions that an answer may call."""

    prompts: tuple[tuple[int, ...], ...]
    params: SamplingParams
    num_choices: int = 1
    speculation: bool = True
    budget: int | None = None
    plan: Plan | None = None
    calling: Calling | None = None

    def jobs(self, tenant: Tenant, deadline_s: float | None, request: str) -> list[Job]:
        """request: its id, for logs."""
        told = None if self.calling is None else partial(ending, self.calling)
        shared = tenant.id, self.speculation, self.budget, deadline_s, self.plan, request, told
        return [
            Job(ids, replace(self.params, choice=choice), *shared)
            for ids in self.prompts
            for choice in range(self.num_choices)
        ]


Ask = Callable[[Serving, Options], Asked]


def ask_chat(request: ChatRequest) -> Ask:
    if request.max_tokens is not None and request.max_completion_tokens not in (None, request.max_tokens):
        raise bad_request("invalid_value", "max_tokens and max_completion_tokens differ; give one", "max_tokens")
    if request.top_logprobs is not None and not request.logprobs:
        raise bad_request("invalid_value", "top_logprobs needs logprobs: true", "top_logprobs")
    limit = request.max_completion_tokens if request.max_tokens is None else request.max_tokens
    logprobs = (request.top_logprobs or 0) if request.logprobs else None

    def ask(serving: Serving, options: Options) -> Asked:
        calling = calling_of(request, serving, options)
        offered = None if calling is None else [tool.plain() for tool in request.tools or ()]
        ids = _chat_ids(serving, request.messages, offered)
        asked = _asked(request, [ids], serving, options, limit, logprobs, request.n)
        return asked if calling is None else _calling(asked, with_thought(calling, serving, ids), request, serving)

    return ask


def ask_completion(request: CompletionRequest) -> Ask:
    if request.stream and request.echo and request.logprobs is not None:
        raise bad_request("unsupported_parameter", "logprobs of the prompt (echo) do not come as a stream", "echo")

    def ask(serving: Serving, options: Options) -> Asked:
        prompts = [_text_ids(serving, prompt) for prompt in _prompts(request.prompt)]
        asked = _asked(request, prompts, serving, options, request.max_tokens, request.logprobs, request.n)
        scored = bool(request.echo and request.logprobs is not None)
        return replace(asked, params=replace(asked.params, score_prompt=scored))

    return ask


def ask_generate(request: GenerateRequest) -> Ask:
    if (request.prompt is None) == (request.messages is None):
        raise bad_request("invalid_value", "give prompt or messages, one of the two", "prompt")

    def ask(serving: Serving, options: Options) -> Asked:
        if request.prompt is None:
            ids = _chat_ids(serving, request.messages or [])
        else:
            ids = _text_ids(serving, request.prompt)
        return _asked(request, [ids], serving, options, request.max_tokens, request.logprobs, None)

    return ask


def _asked(
    request: Request,
    prompts: Sequence[Sequence[int]],
    serving: Serving,
    options: Options,
    max_tokens: int | None,
    logprobs: int | None,
    num_choices: int | None,
) -> Asked:
    if max_tokens is not None:
        _check_fits(prompts, max_tokens, serving.card.context)
    params = _params(request, options.defaults, max_tokens, logprobs)
    params = replace(params, grammar=_grammar(request.response_format, serving))
    params.validate()
    medusa = request.medusa
    off = bool(medusa and medusa.off)
    budget = medusa.budget if medusa else None
    ids = tuple(tuple(prompt) for prompt in prompts)
    return Asked(ids, params, num_choices or 1, not off, budget, _plan(medusa, serving))


def _calling(asked: Asked, calling: Calling, request: ChatRequest, serving: Serving) -> Asked:
    params = asked.params
    if params.acceptance != "exact":
        message = f"tools go with exact acceptance, not {params.acceptance}"
        raise bad_request("invalid_value", message, "tools")
    params = replace(params, grammar=grammar_of(calling, request, serving))
    params.validate()
    return replace(asked, params=params, calling=calling)


def _params(request: Request, defaults: SamplingParams, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
    given = {name: getattr(request, name) for name in _SAME_NAMES if getattr(request, name) is not None}
    if max_tokens is not None:
        given["max_tokens"] = max_tokens
    if request.stop is not None:
        given["stop"] = (request.stop,) if isinstance(request.stop, str) else tuple(request.stop)
        if len(given["stop"]) > MAX_STOPS:
            raise bad_request("invalid_value", f"stop holds {len(request.stop)} texts; at most {MAX_STOPS}", "stop")
        if (longest := max(map(len, given["stop"]), default=0)) > MAX_STOP_CHARS:
            message = f"stop holds a text of {longest} characters; at most {MAX_STOP_CHARS}"
            raise bad_request("invalid_value", message, "stop")
    if request.logit_bias:
        given["logit_bias"] = {_bias_id(name): bias for name, bias in request.logit_bias.items()}
    if request.medusa and request.medusa.acceptance:
        given["acceptance"] = request.medusa.acceptance
    return replace(defaults, logprobs=logprobs, **given)


def _grammar(wished: ResponseFormat | None, serving: Serving) -> Grammar | None:
    """Raises ApiError, FormError for a schema that cannot be followed."""
    if wished is None or wished.type == "text":
        return None
    if serving.grammars is None:
        raise bad_request("unsupported_parameter", "response_format is not supported here", "response_format")
    if wished.type == "json_object":
        return serving.grammars.json_schema()
    if wished.json_schema is None:
        raise bad_request("missing_parameter", "response_format.json_schema: it is required", "response_format")
    return serving.grammars.json_schema(wished.json_schema.schema_)


def _plan(wished: Medusa | None, serving: Serving) -> Plan | None:
    """Raises ApiError for a drafter or a tree that there is not."""
    if wished is None or (wished.drafter is None and wished.tree is None):
        return None
    param = "medusa.tree" if wished.drafter is None else "medusa.drafter"
    if serving.drafting is None or serving.drafting.choices is None:
        raise bad_request("unsupported_parameter", f"{param} cannot be chosen here", param)
    try:
        return serving.drafting.choices.plan(wished.drafter, wished.tree)
    except UsageError as error:
        param = "medusa.drafter" if error.message.startswith("drafter") else "medusa.tree"
        raise bad_request("invalid_value", error.message, param) from None


def _bias_id(name: str) -> int:
    if not (name.isascii() and name.isdigit()) or len(name) > 9:
        raise bad_request(
            "invalid_value", f"logit_bias maps token ids to numbers; {name!r} is no token id", "logit_bias"
        )
    return int(name)


def _check_fits(prompts: Sequence[Sequence[int]], max_tokens: int, context: int) -> None:
    longest = max(map(len, prompts))
    if max_tokens > 0 and longest + max_tokens > context:
        message = (
            f"the prompt has {longest} tokens and {max_tokens} are asked for: {longest + max_tokens} together, but the "
            f"context holds {context}"
        )
        raise bad_request("context_length_exceeded", message, "max_tokens")


def _chat_ids(
    serving: Serving, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None
) -> list[int]:
    plain = plain_messages(messages)
    check_messages(plain)
    with_calls, template = serving.tokenizer.tool_template, serving.tokenizer.chat_template
    if tools is None and with_calls != template and any("tool_calls" in message for message in plain):
        tools = ()  # none are offered, but calls from before are shown by the template that knows them
    template = template if tools is None else with_calls
    for place, message in enumerate(plain):
        if "tool_calls" in message and template is not None and "tool_calls" not in template:
            text = f"the chat template of {serving.card.name} shows no calls; --chat-template FILE takes another"
            raise bad_request("unsupported_parameter", text, f"messages.{place}.tool_calls")
    try:
        return chat_ids(serving.tokenizer, plain, tools=tools)
    except TokenizerError as error:  # no template, or one that refuses these messages
        raise bad_request("invalid_value", error.message, "messages") from None


def _text_ids(serving: Serving, prompt: str | list[int]) -> list[int]:
    if isinstance(prompt, str):
        return serving.tokenizer.encode(prompt, add_special=True)
    return token_ids(prompt, serving.card.vocab_size)


def _prompts(prompt: str | list[str] | list[int] | list[list[int]]) -> Sequence[str | list[int]]:
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise bad_request("invalid_value", "the prompt is empty", "prompt")
    if isinstance(prompt[0], int):
        return [prompt]
    if len(prompt) > MAX_PROMPTS:
        raise bad_request("invalid_value", f"{len(prompt)} prompts in one request; at most {MAX_PROMPTS}", "prompt")
    return prompt
