"""A server that speaks OpenAI's API, asked for answers: one blocking request at a time, with retries.

Standard library alone. Who wants many requests at once calls from many threads (endpoint_answers.py).
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from medusakit.errors import DatasetError, MedusaError, RuntimeFailure, UsageError

_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_LONGEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Said:
    """text: the answer. ended: the model stopped by itself. num_tokens: as the server counts, 0 if it does not say."""

    text: str
    ended: bool
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """url: with or without /v1. model: "" takes the only one that is served.

    retries  further tries of a request that failed for a reason that passes (busy, restarting, cut off), each after
             twice the wait, or what the server asks for
    """

    url: str
    model: str = ""
    api_key: str = ""
    timeout_s: float = 600.0
    retries: int = 6
    wait_s: float = 1.0
    sleep: Callable[[float], None] = time.sleep

    def checked(self) -> Endpoint:
        """The same with the model's name as the server has it. Raises as `chat`, UsageError for a model not served."""
        served = [str(entry["id"]) for entry in self._call("/models", None).get("data", ())]
        if self.model in served:
            return self
        known = ", ".join(served) or "none"
        if self.model or len(served) != 1:
            what = f"does not serve {self.model!r}" if self.model else "serves not exactly one model"
            hint = f"--endpoint-model {served[0]}" if served else "medusa serve -m MODEL"
            raise UsageError(f"{self.url} {what}; it serves: {known}", hint=hint)
        return Endpoint(self.url, served[0], self.api_key, self.timeout_s, self.retries, self.wait_s, self.sleep)

    def chat(self, messages: Sequence[Mapping[str, str]], **params: Any) -> Said:
        """The answer to a conversation. params: as in a request (max_tokens, temperature, seed, ...).

        Raises UsageError (key, model, a request the server refuses), RuntimeFailure (away, or busy to the end).
        """
        reply = self._call("/chat/completions", {"model": self.model, "messages": list(messages), **params})
        return _said(reply, lambda choice: choice["message"]["content"] or "")

    def complete(self, prompt_ids: Sequence[int], **params: Any) -> Said:
        """What the model writes after these token ids, which no template touches. Raises as `chat`."""
        reply = self._call("/completions", {"model": self.model, "prompt": list(prompt_ids), **params})
        return _said(reply, lambda choice: choice["text"])

    def _call(self, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        for attempt in range(self.retries + 1):
            last = attempt == self.retries
            try:
                return self._send(path, body)
            except urllib.error.HTTPError as error:
                if last or error.code not in _PASSING:
                    raise self._refused(error, path) from None
                self.sleep(_asked_wait(error) or self._wait(attempt))
            except (urllib.error.URLError, OSError, TimeoutError) as error:
                if last or path == "/models":  # nobody was there yet: waiting for a wrong address helps no one
                    raise self._away(error) from None
                self.sleep(self._wait(attempt))
        raise AssertionError("every try returns or raises")

    def _send(self, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        base = self.url.rstrip("/").removesuffix("/v1")
        if not base.startswith(("http://", "https://")):
            raise UsageError(f"--endpoint {self.url!r} is no http address", hint="--endpoint http://127.0.0.1:8642")
        headers = {"Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{base}/v1{path}", data, headers)
        with urllib.request.urlopen(request, timeout=self.timeout_s) as response:
            content = response.read()
        try:
            reply = json.loads(content)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise DatasetError(f"{self.url} does not answer as OpenAI's API does: {content[:80]!r}", hint=_SERVERS)
        return reply

    def _wait(self, attempt: int) -> float:
        return float(min(self.wait_s * 2**attempt, _LONGEST_WAIT_S))

    def _refused(self, error: urllib.error.HTTPError, path: str) -> MedusaError:
        said = error.read().decode(errors="replace")[:300]
        if error.code in (401, 403):
            how = "refuses the API key" if self.api_key else "wants an API key"
            return UsageError(f"{self.url} {how} ({error.code})", hint="--api-key-env NAME, a variable that holds one")
        if error.code in _PASSING:
            hint = "a smaller --concurrency, or the same command later: it goes on from here"
            return RuntimeFailure(f"{self.url} answered {error.code} to {self.retries + 1} tries: {said}", hint=hint)
        if error.code == 404:
            return UsageError(f"{self.url} has no {path} or no model {self.model!r}: {said}", hint=_SERVERS)
        return UsageError(f"{self.url} refuses the request ({error.code}): {said}", hint=_SERVERS)

    def _away(self, error: Exception) -> RuntimeFailure:
        reason = getattr(error, "reason", error)
        return RuntimeFailure(f"no server answers at {self.url}: {reason}", hint=_SERVERS)


_SERVERS = "an OpenAI-compatible server: medusa serve -m MODEL, or vllm serve MODEL"


def _said(reply: Mapping[str, Any], text_of: Callable[[Any], str]) -> Said:
    try:
        choice = reply["choices"][0]
        num_tokens = int((reply.get("usage") or {}).get("completion_tokens") or 0)
        return Said(text_of(choice), choice.get("finish_reason") == "stop", num_tokens)
    except (KeyError, IndexError, TypeError, AttributeError) as cause:
        raise DatasetError(f"the server's answer has no text: {str(dict(reply))[:200]}", hint=_SERVERS) from cause


def _asked_wait(error: urllib.error.HTTPError) -> float:
    """Retry-After in seconds, 0 if there is none."""
    given = str(error.headers.get("Retry-After", "")) if error.headers else ""
    try:
        return min(max(float(given), 0.0), _LONGEST_WAIT_S)
    except ValueError:
        return 0.0
