"""What every request goes through before a route sees it: an id, a limit of its body, a log line of its failure."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from medusakit.server.service import request_id


class RequestId:
    """Takes the client's x-request-id or makes one; routes find it in `request.state`, clients in the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = request_id(Headers(scope=scope))
        scope.setdefault("state", {})["request_id"] = name

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["x-request-id"] = name
            await send(message)

        await self._app(scope, receive, tell)


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
