"""Server-sent events over one HTTP answer, and what happens when the client stalls or leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

PING_S = 15.0  # of silence: proxies close connections that say nothing
STALL_S = 30.0  # a client that takes nothing for so long is gone, or worse
DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"


def frame(document: Any) -> bytes:
    """One event. Newlines within are escaped by JSON itself."""
    return b"data: " + json.dumps(document, ensure_ascii=False, allow_nan=False).encode() + b"\n\n"


async def gone(receive: Receive) -> None:
    """Returns when the client has closed the connection; the request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Sends frames as they come. `close` is called once, however it ends: all sent, client gone, client stalled."""

    media_type = "text/event-stream"

    def __init__(
        self,
        frames: AsyncIterator[bytes],
        close: Callable[[], None],
        *,
        headers: dict[str, str] | None = None,
        ping_s: float = PING_S,
        stall_s: float = STALL_S,
    ) -> None:
        super().__init__(None, headers={"cache-control": "no-cache", "x-accel-buffering": "no", **(headers or {})})
        del self.headers["content-length"]
        self._frames, self._close = frames, close
        self._ping_s, self._stall_s, self._sent_s = ping_s, stall_s, 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tasks = [asyncio.ensure_future(self._send_all(send)), asyncio.ensure_future(gone(receive))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_all(self, send: Send) -> None:
        """No task is made for a frame: the event loop shares its cores with the model's passes."""
        await self._send(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        pinging = asyncio.ensure_future(self._keep_alive(send))
        try:
            async for data in self._frames:
                await self._send(send, _body(data))
        finally:
            pinging.cancel()
        await self._send(send, _body(b"", more=False))

    async def _send(self, send: Send, message: Message) -> None:
        async with asyncio.timeout(self._stall_s):
            await send(message)
        self._sent_s = asyncio.get_running_loop().time()

    async def _keep_alive(self, send: Send) -> None:
        """A comment whenever nothing has been sent for a while."""
        while True:
            silent_s = asyncio.get_running_loop().time() - self._sent_s
            if silent_s < self._ping_s:
                await asyncio.sleep(self._ping_s - silent_s)
            else:
                await self._send(send, _body(PING))


def _body(data: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}
