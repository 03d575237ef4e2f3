"""What requests may hold. A field that is not here and would change the output is refused by its name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from medusakit.server.messages import Message
from medusakit.server.strict import FIRST, Wire, has_surrogate
from medusakit.server.tools import MAX_TOOLS, Tool, ToolChoice
from medusakit.settings import MIN_REPETITION_PENALTY
from medusakit.tree.given import MAX_DEPTH, MAX_PATHS, MAX_RANK

# Fields of OpenAI's that say something about the caller or the bill, not about the output.
ABOUT_THE_CALLER = frozenset(
    {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"}
)
MAX_CHOICES = 16
MAX_TOP = 20


Texts = Annotated[list[str], FIRST]
Ids = Annotated[list[int], FIRST]


def _first_fault(given: Any) -> Any:
    """A table with its first value that is no number, if it has one; the others need not be told."""
    if not isinstance(given, dict):
        return given
    return next(({name: value} for name, value in given.items() if not isinstance(value, int | float)), given)


class StreamOptions(Wire):
    neutral = {"include_obfuscation": (False,)}
    include_usage: bool | None = None


TreeName = Annotated[str, Field(pattern=r"^(dynamic|static|[1-9][0-9]{0,2}[xX][1-9][0-9]{0,2})$")]
Rank = Annotated[int, Field(ge=0, le=MAX_RANK)]
RankPath = Annotated[list[Rank], Field(min_length=1, max_length=MAX_DEPTH, fail_fast=True)]
TreePaths = Annotated[list[RankPath], Field(min_length=1, max_length=MAX_PATHS, fail_fast=True)]


class Medusa(Wire):
    """off: decode plainly. budget: rows of a verify pass for this request at most. acceptance: `typical` is lossy.

    drafter  instead of the server's, as --drafter names it, of those that there are for its model
    tree     instead of the server's: `dynamic`, `static` (calibrated), depth x branching as --tree ("2x3"), or its
             nodes as paths of ranks, parents first: [[0], [1], [0, 0]]; the best guess has rank 0
    """

    off: bool | None = None
    budget: int | None = Field(None, ge=1, le=256)
    drafter: str | None = None
    tree: TreeName | TreePaths | None = None
    acceptance: Literal["exact", "typical", "dynamic"] | None = None


class JsonSchema(Wire):
    """schema: the JSON schema of the answer. strict: it always is."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(Wire):
    """`json_object`: any JSON object. `json_schema`: one of the schema given."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


def _within(**bounds: Any) -> Any:
    """A field whose range `SamplingParams` checks; here it is only told to the readers of the OpenAPI document."""
    return Field(None, json_schema_extra=bounds)


class Request(Wire):
    """What every way to ask has in common."""

    ignored = ABOUT_THE_CALLER
    model: str | None = None
    max_tokens: int | None = _within(minimum=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: str | Texts | None = None
    temperature: float | None = _within(minimum=0, maximum=100)
    top_p: float | None = _within(exclusiveMinimum=0, maximum=1)
    top_k: int | None = _within(minimum=0)
    min_p: float | None = _within(minimum=0, maximum=1)
    repetition_penalty: float | None = _within(minimum=MIN_REPETITION_PENALTY, maximum=100)
    presence_penalty: float | None = _within(minimum=-2, maximum=2)
    frequency_penalty: float | None = _within(minimum=-2, maximum=2)
    seed: int | None = _within(minimum=0)
    logit_bias: Annotated[dict[str, float], BeforeValidator(_first_fault)] | None = None
    ignore_eos: bool | None = None
    response_format: ResponseFormat | None = None
    medusa: Medusa | None = None

    @property
    def has_form(self) -> bool:
        """Whether the answer has a form that must be compiled."""
        return self.response_format is not None

    @model_validator(mode="before")
    @classmethod
    def _only_text(cls, given: Any) -> Any:
        if has_surrogate(given):
            raise PydanticCustomError("not_unicode", "a text is not valid Unicode: it holds a lone surrogate")
        return given


class ChatRequest(Request):
    neutral = {
        "audio": (),
        "function_call": ("none",),
        "functions": ([],),
        "modalities": (["text"],),
        "web_search_options": (),
    }
    model: str
    messages: list[Message] = Field(min_length=1, fail_fast=True)
    tools: list[Tool] | None = Field(None, max_length=MAX_TOOLS)
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_completion_tokens: int | None = _within(minimum=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MAX_TOP)
    n: int | None = Field(None, ge=1, le=MAX_CHOICES)

    @property
    def has_form(self) -> bool:
        return (bool(self.tools) and self.tool_choice != "none") or super().has_form


class CompletionRequest(Request):
    """prompt: a text, several, or token ids of one or several."""

    neutral = {"best_of": (1,), "suffix": ("",)}
    model: str
    prompt: str | Texts | Ids | Annotated[list[Ids], FIRST]
    echo: bool | None = None
    logprobs: int | None = Field(None, ge=0, le=MAX_TOP)
    n: int | None = Field(None, ge=1, le=MAX_CHOICES)


class GenerateRequest(Request):
    """Our own: a prompt as it is, or messages; the answer carries the provenance of every token."""

    prompt: str | Ids | None = None
    messages: Annotated[list[Message], FIRST] | None = None
    logprobs: int | None = Field(None, ge=0, le=MAX_TOP)


class HeadsRequest(Wire):
    """path: folder of heads; `none` takes heads away. drafter: as --drafter."""

    path: str
    drafter: str | None = None


class SpeculationRequest(Wire):
    on: bool


class ErrorBody(BaseModel):
    message: str
    type: str
    param: str | None
    code: str


class ErrorReply(BaseModel):
    error: ErrorBody
