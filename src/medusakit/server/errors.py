"""Failures as OpenAI's clients know them: {"error": {message, type, param, code}}, with string codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from medusakit.errors import ArtifactError, ContextLengthError, FormError, MedusaError, UsageError

_NO_OBJECT = ("model_attributes_type", "model_type", "dict_type")


@dataclass(frozen=True, slots=True)
class Failure:
    """What is sent. retry_after_s: a header, for failures that pass by themselves."""

    status: int
    type: str
    code: str
    message: str
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """A lone surrogate, which a client may have sent and the message may repeat, is no UTF-8: it becomes `?`."""
        message = self.message.encode("utf-8", "replace").decode()
        return {"error": {"message": message, "type": self.type, "param": self.param, "code": self.code}}


class ApiError(Exception):
    """Raised where a request cannot be served."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def bad_request(code: str, message: str, param: str | None = None, status: int = 400) -> ApiError:
    return ApiError(Failure(status, "invalid_request_error", code, message, param))


def unknown_model(asked: str, names: Sequence[str]) -> ApiError:
    """names: what the served model answers to."""
    message = f"model {asked!r} is not served here; served: {', '.join(names)}"
    return ApiError(Failure(404, "not_found_error", "model_not_found", message, "model"))


def unauthorised() -> ApiError:
    """The same answer for a missing key and a wrong one."""
    message = "no valid API key: send `Authorization: Bearer KEY`"
    failure = Failure(401, "authentication_error", "invalid_api_key", message, headers={"www-authenticate": "Bearer"})
    return ApiError(failure)


def unavailable(code: str, message: str, retry_after_s: int) -> ApiError:
    headers = {"retry-after": str(retry_after_s)}
    return ApiError(Failure(503, "unavailable_error", code, message, headers=headers))


def queue_full(message: str, retry_after_s: float) -> ApiError:
    headers = {"retry-after": str(max(1, round(retry_after_s)))}
    return ApiError(Failure(429, "rate_limit_error", "queue_full", message, headers=headers))


def internal(request_id: str) -> Failure:
    """Says nothing of what happened; the log does, under the same id."""
    return Failure(500, "server_error", "internal_error", f"internal error; request id {request_id}")


def of_medusa(error: MedusaError, params: Sequence[str] = ()) -> Failure | None:
    """The failure that a client may be told; None for one that is the server's own.

    params  names that a request may have: the one that the message begins with is at fault
    """
    if isinstance(error, ContextLengthError):
        return Failure(400, "invalid_request_error", "context_length_exceeded", error.message)
    if isinstance(error, FormError):  # before the answer began, or where it became too much
        return Failure(400, "invalid_request_error", error.code, error.message, "response_format")
    if isinstance(error, UsageError):
        words = error.message.split()
        param = words[0] if words and words[0] in params else None
        return Failure(400, "invalid_request_error", "invalid_value", error.message, param)
    if isinstance(error, ArtifactError):
        return Failure(409, "invalid_request_error", error.code, str(error))
    return None


def of_validation(errors: Sequence[Mapping[str, Any]], body: Any = None) -> Failure:
    """What pydantic found first about a request. Where a field may be of several kinds, of the kind that comes nearest,
    which is found fault with farthest inside.

    body  the request, as it came
    """
    begun = _place(errors[0], body)
    error = max(
        (one for one in errors if _place(one, body)[: len(begun)] == begun), key=lambda one: len(_place(one, body))
    )
    kind, place = error["type"], _place(error, body)
    if kind == "json_invalid":
        return Failure(400, "invalid_request_error", "invalid_json", "the body is not valid JSON")
    if kind in _NO_OBJECT and not place:
        text = "the body is not a JSON object, or does not come with content-type: application/json"
        return Failure(400, "invalid_request_error", "invalid_value", text)
    if kind == "unsupported_parameter":
        param = ".".join([*place, str(error["ctx"]["name"])])
        text = f"{'.'.join(place)}: {error['msg']}" if place else str(error["msg"])
        return Failure(400, "invalid_request_error", "unsupported_parameter", text, param)
    param = ".".join(place)
    found = " or: ".join(dict.fromkeys(one["msg"] for one in errors if _place(one, body) == place))
    text = f"{param or 'the body'}: {'it is required' if kind == 'missing' else found}"
    code = "missing_parameter" if kind == "missing" else "invalid_value"
    return Failure(400, "invalid_request_error", code, text, param or None)


def _place(error: Mapping[str, Any], body: Any) -> list[str]:
    """Where in the body a finding is. pydantic's own place also names the kinds of a field that may be of several;
    they are no fields, so they are not found in the body.
    """
    parts = error["loc"][1:] if error["loc"][:1] == ("body",) else error["loc"]
    place: list[str] = []
    for index, part in enumerate(parts):
        is_there = part in body if isinstance(body, dict) else isinstance(body, list) and isinstance(part, int)
        if is_there:
            body = body[part]
        if is_there or (error["type"] == "missing" and index == len(parts) - 1):
            place.append(str(part))
    return place
