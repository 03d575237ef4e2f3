"""A `medusa serve` process of one's own, and how the serving benchmarks talk to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

GENERATE, CHAT, COMPLETIONS = "/medusa/generate", "/v1/chat/completions", "/v1/completions"


class Served:
    """Starts when it is entered, drains when it is left."""

    def __init__(self, model: str, *flags: str, keys: tuple[str, ...] = ()) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        self.port, self._model = port, model
        command = [sys.executable, "-m", "medusakit", "serve", "-m", model, "--port", str(port), *flags]
        self._folder = tempfile.TemporaryDirectory()
        self._log = Path(self._folder.name) / "log"
        if keys:
            file = Path(self._folder.name) / "keys"
            file.write_text("\n".join(keys) + "\n")
            command += ["--api-keys", str(file)]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(command, stderr=log)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Served:
        for _ in range(1200):
            if self._process.poll() is not None:
                raise SystemExit(f"the server ended while it loaded:\n{self._log.read_text()}")
            with contextlib.suppress(OSError):
                if self.get("/ready")[0] == 200:
                    return self
            time.sleep(0.1)
        raise SystemExit("the server was not ready within two minutes")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
        self._folder.cleanup()

    def get(self, path: str, key: str = "") -> tuple[int, str]:
        """Status and text."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port)) as connection:
            connection.request("GET", path, headers=_headers(key))
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def post(self, path: str, body: Mapping[str, Any], key: str = "") -> dict[str, Any]:
        """The whole answer. Raises SystemExit with the error, if it is one."""
        with self.asked(path, body, key) as answer:
            text = answer.read().decode()
        if answer.status != 200:
            raise SystemExit(f"{path} answered {answer.status}: {text[:300]}")
        found: dict[str, Any] = json.loads(text)
        return found

    @contextmanager
    def stream(
        self, path: str, body: Mapping[str, Any], key: str = "", *, detail: bool = False
    ) -> Iterator[Iterator[dict[str, Any]]]:
        """Documents of a stream, as they come. detail: they carry the ids of their tokens."""
        with self.asked(path, {**body, "stream": True}, key, detail=detail) as answer:
            if answer.status != 200:
                raise SystemExit(f"{path} answered {answer.status}: {answer.read().decode()[:300]}")
            yield (json.loads(data) for data in frames(answer) if data != "[DONE]")

    @contextmanager
    def asked(
        self, path: str, body: Mapping[str, Any], key: str = "", *, detail: bool = False
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer, whatever its status. The connection is closed when the block is left, read or not."""
        about = {} if path.startswith("/admin") else {"model": self._model}
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port)) as connection:
            headers = {"Content-Type": "application/json"} | _headers(key)
            headers |= {"x-medusa-detail": "1"} if detail else {}
            connection.request("POST", path, json.dumps(about | dict(body)), headers)
            with contextlib.closing(connection.getresponse()) as answer:
                yield answer

    def state(self, key: str = "") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get("/v1/state", key)[1])
        return found

    def idle(self, key: str = "", limit_s: float = 30.0) -> dict[str, Any]:
        """The scheduler's state once nothing runs and nothing waits. Raises SystemExit after `limit_s`."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            found: dict[str, Any] = self.state(key)["scheduler"]
            if not found["running"] + found["waiting"]:
                return found
            time.sleep(0.02)
        raise SystemExit(f"requests were still open after {limit_s:.0f} s")

    def resident_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))


def frames(answer: http.client.HTTPResponse) -> Iterator[str]:
    """What the events of a stream carry, the closing [DONE] among them."""
    while line := answer.readline():
        if line.startswith(b"data: "):
            yield line.decode().removeprefix("data: ").strip()


def _headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}
