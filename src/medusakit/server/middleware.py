"""What every request goes through: an id, a limit of its body, a last resort when something fails."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from medusakit.server.errors import internal
from medusakit.server.logs import LOGGER


class RequestId:
    """Takes the client's x-request-id or makes one; routes find it in `request.state`, clients in the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = _request_id(Headers(scope=scope))
        scope.setdefault("state", {})["request_id"] = name

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["x-request-id"] = name
            await send(message)

        await self._app(scope, receive, tell)


class LastResort:
    """An error that nobody expected: 500 with the request's id, and the reason in the log alone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            if begun or scope["type"] != "http":
                raise
            name = scope["state"]["request_id"]
            about = {"request_id": name, "path": scope["path"]}
            LOGGER.error("internal error", exc_info=error, extra={"fields": about})
            failure = internal(name)
            await JSONResponse(failure.body(), failure.status)(scope, receive, send)


class BodyLimit:
    """Refuses bodies over the limit with 413, by their announced length or as soon as more has come."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app, self._max_bytes = app, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced, taken = Headers(scope=scope).get("content-length", ""), 0
        too_long = announced.isdigit() and int(announced) > self._max_bytes

        async def limited() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if too_long or taken > self._max_bytes:
                raise HTTPException(413, f"the body is larger than {self._max_bytes} bytes")
            return message

        await self._app(scope, limited, send)


def _request_id(headers: Mapping[str, str]) -> str:
    """The client's own id if it is one that logs can hold, else a fresh one."""
    given = headers.get("x-request-id", "")
    fits = 0 < len(given) <= 64 and given.isascii() and all(char.isalnum() or char in "-_.:" for char in given)
    return given if fits else f"req-{secrets.token_hex(12)}"
