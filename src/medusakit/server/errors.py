"""Failures as OpenAI's clients know them: {"error": {message, type, param, code}}, with string codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from medusakit.errors import ArtifactError, ContextLengthError, FormError, MedusaError, UsageError

_KINDS = ("a word", "a function")  # tags of unions: no fields of a request


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


def of_validation(errors: Sequence[Mapping[str, Any]]) -> Failure:
    """The first of pydantic's findings about a request."""
    first = errors[0]
    place = [str(part) for part in first["loc"] if part not in ("body", *_KINDS)]
    if first["type"] == "json_invalid":
        return Failure(400, "invalid_request_error", "invalid_json", "the body is not valid JSON")
    context = first.get("ctx") or {}
    if first["type"] == "unsupported_parameter":
        param = ".".join([*place, str(context["name"])])
        return Failure(400, "invalid_request_error", "unsupported_parameter", str(first["msg"]), param)
    param = ".".join(place)
    missing = first["type"] == "missing"
    code = "missing_parameter" if missing else "invalid_value"
    text = f"{param or 'the body'}: {'it is required' if missing else first['msg']}"
    return Failure(400, "invalid_request_error", code, text, param or None)
