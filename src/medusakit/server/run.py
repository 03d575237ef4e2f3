"""The process: the port, loading beside it, and an orderly end."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable
from types import FrameType

import uvicorn

from medusakit.errors import RuntimeFailure
from medusakit.server.app import create_app
from medusakit.server.logs import LOGGER, JsonLines
from medusakit.server.service import Service, Serving

KEEP_ALIVE_S = 75  # longer than proxies keep a connection (60 s), or one that closes just now loses a request
LOADING_S = 1.0  # that the end waits for a model that is being loaded

Load = Callable[[], Serving]


def serve(service: Service, load: Load, address: socket.socket, on_ready: Callable[[Serving], None]) -> bool:
    """Answer at the address until SIGINT or SIGTERM; open requests are then finished, within limits. True: all were.

    The port answers at once, requests while the model loads with 503. Raises what `load` raises.
    """
    config = uvicorn.Config(
        create_app(service),
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=5,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    server = _Server(config, service)
    server.load(load, on_ready)
    server.run(sockets=[address])
    server.close()
    if server.failure is not None:
        raise server.failure
    return server.all_done


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, so that another server finds the address taken from here on, not only once this one has
    loaded. Raises RuntimeFailure if the address is taken or not this machine's."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return _bound(socket.socket(family), host, port)
    except (OSError, UnicodeError) as error:  # UnicodeError: no host is called so
        reason = getattr(error, "strerror", None) or error
        message = f"cannot listen on {host} port {port}: {reason}"
        raise RuntimeFailure(message, hint="--port 0   takes a free one") from None


def _bound(found: socket.socket, host: str, port: int) -> socket.socket:
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen()
    except BaseException:
        found.close()
        raise
    return found


def log_to_stderr() -> None:
    """Log lines of the server, and warnings of the engine's and uvicorn's, as JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    handler.addFilter(_no_cancel)
    others = [logging.getLogger(name) for name in ("medusakit.engine", "uvicorn")]
    for logger, level in ((LOGGER, logging.INFO), *((other, logging.WARNING) for other in others)):
        logger.setLevel(level)
        logger.propagate = False
        logger.handlers = [handler]


def _no_cancel(record: logging.LogRecord) -> bool:
    """Requests that a second signal cuts off are no faults, though uvicorn tells of each with a traceback."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)


class _Server(uvicorn.Server):
    """The first signal drains, a second one ends at once."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._draining: threading.Thread | None = None
        self.failure: BaseException | None = None
        self.all_done = True

    def load(self, load: Load, on_ready: Callable[[Serving], None]) -> None:
        """In a thread of its own, which nobody waits for: whoever stops the server while it loads need not wait."""
        self._loading = threading.Thread(target=self._load, args=(load, on_ready), name="loading", daemon=True)
        self._loading.start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Signals are not passed on afterwards: a drained server has ended well."""
        if self._draining is not None:
            self.should_exit = self.force_exit = True
            return
        self._draining = threading.Thread(target=self._drain, name="draining", daemon=True)
        self._draining.start()

    def close(self) -> None:
        """After a signal: native code that still runs on another thread while the interpreter ends aborts the process.
        Where it is a step of the model, that is ended; where a model is being loaded, the process ends here."""
        if self._draining is None:
            return
        self._loading.join(LOADING_S)
        if self._loading.is_alive():
            logging.shutdown()
            os._exit(0)
        self._service.cut()
        self._draining.join()

    def _load(self, load: Load, on_ready: Callable[[Serving], None]) -> None:
        try:
            serving = load()
            self._service.opened(serving)
            on_ready(serving)
        except BaseException as error:
            if self._draining is None:  # else the address is closed by now, and nobody waits for the model
                self.failure = error
            self._service.failed()
            self.should_exit = True

    def _drain(self) -> None:
        self.all_done = self._service.drain()
        self.should_exit = True
