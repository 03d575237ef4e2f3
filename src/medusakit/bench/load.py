"""Load on an OpenAI-compatible URL: requests from a workload, so many at once or so many a second, each timed.

No client library: a few lines of HTTP/1.1 over asyncio, so that what is measured is the server. Times are of this side:
    ttft   request sent to the first chunk with text
    itl    between two chunks with text (a chunk may carry several tokens)
    tpot   (last chunk - first chunk) / (tokens - 1), tokens as the server's usage says
    e2e    request sent to the end of the stream
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from medusakit.errors import RuntimeFailure, UsageError

_REMEDIES = {
    "401": "MEDUSA_API_KEY=KEY medusa bench serve ...   with a key of the server's",
    "403": "MEDUSA_API_KEY=KEY medusa bench serve ...   with a key that stands as admin:KEY in the server's file",
    "404": "medusa bench serve -m NAME ...   with a name that the server has",
}


@dataclass(frozen=True, slots=True)
class LoadConfig:
    """url: with or without /v1. rate: requests a second, arriving at random (Poisson); None: as soon as one of the
    `concurrency` is done. slo_ms: (ttft, tpot) that a request must keep to count for goodput."""

    url: str
    model: str
    concurrency: tuple[int, ...] = (1, 4, 16)
    num_requests: int = 16
    rate: float | None = None
    max_tokens: int = 128
    temperature: float = 0.0
    api_key: str = ""
    slo_ms: tuple[float, float] | None = None
    seed: int = 0


@dataclass(slots=True)
class Timed:
    """One request. error: empty if it was answered to its end."""

    sent_s: float
    chunks_s: list[float] = field(default_factory=list)
    end_s: float = 0.0
    tokens: int = 0
    timings: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def ttft_s(self) -> float:
        return self.chunks_s[0] - self.sent_s

    @property
    def tpot_s(self) -> float | None:
        return (self.chunks_s[-1] - self.chunks_s[0]) / (self.tokens - 1) if self.tokens > 1 else None


Ask = Callable[[str], Any]
OnRequest = Callable[[int, int, str], None]


def run_load(
    config: LoadConfig, prompts: Sequence[str], on_request: OnRequest | None = None, *, num_samples: int = 0
) -> dict[str, Any]:
    """The document of all points. num_samples: answers of the first point that it holds in full.

    Raises UsageError for a URL that is none, RuntimeFailure if nothing was answered.
    """
    address(config.url)
    samples: list[dict[str, Any]] = []
    sizes = [max(config.num_requests, concurrency) for concurrency in config.concurrency]
    points, count = [], counter(sum(sizes), on_request)
    for concurrency, size in zip(config.concurrency, sizes, strict=True):
        chosen = [prompts[place % len(prompts)] for place in range(size)]
        timed, seconds = measured(config, concurrency, chosen, count)
        points.append(point(concurrency, timed, seconds, config.slo_ms))
        if not samples:
            asked = zip(chosen[:num_samples], timed, strict=False)
            samples = [{"prompt": prompt, "answers": {"server": one.text}} for prompt, one in asked]
    check_answered(config, points, timed)
    return {"bench": "serve", "config": about(config), "points": points, "samples": samples}


def counter(total: int, on_request: OnRequest | None) -> Callable[[Timed], None]:
    """What tells `on_request` of every request that ended: how many of `total` have, and its error."""
    done = 0

    def count(timed: Timed) -> None:
        nonlocal done
        done += 1
        if on_request:
            on_request(done, total, timed.error)

    return count


def measured(
    config: LoadConfig, concurrency: int, prompts: Sequence[str], count: Callable[[Timed], None]
) -> tuple[list[Timed], float]:
    """Every prompt asked once, in their order, and the seconds of all of them."""
    host, port = address(config.url)
    started = time.perf_counter()
    return asyncio.run(_point(config, host, port, concurrency, prompts, count)), time.perf_counter() - started


def check_answered(config: LoadConfig, points: Sequence[Mapping[str, Any]], timed: Sequence[Timed]) -> None:
    """Raises RuntimeFailure, with the first error of `timed`, if no request of the points was answered."""
    if not any(found["requests"] > found["errors"] for found in points):
        first = next((one.error for one in timed if one.error), "no answer")
        raise RuntimeFailure(f"{config.url} answered no request: {first}", hint=remedy(first))


def reason(body: str) -> str:
    """What a server's error says to a person; of another shape than OpenAI's, its beginning."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200]


def remedy(told: str) -> str:
    """What to try, from an error that begins with a status, if a server answered at all."""
    for status, hint in _REMEDIES.items():
        if told.startswith(status):
            return hint
    return "medusa serve -m smollm2"


def about(config: LoadConfig) -> dict[str, Any]:
    """What a document says of how it came about; never the key."""
    return {"url": config.url, "model": config.model, "rate": config.rate, "max_tokens": config.max_tokens}


def address(url: str) -> tuple[str, int]:
    """Host and port. Raises UsageError: only http is spoken."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise UsageError(f"--url {url!r} is no http address", hint="--url http://127.0.0.1:8642")
    return parts.hostname, parts.port or 80


def point(
    concurrency: int, timed: Sequence[Timed], seconds: float, slo_ms: tuple[float, float] | None
) -> dict[str, Any]:
    """Figures of one concurrency."""
    good = [one for one in timed if not one.error]
    gaps = [later - sooner for one in good for sooner, later in zip(one.chunks_s, one.chunks_s[1:], strict=False)]
    tpots = [one.tpot_s for one in good if one.tpot_s is not None]
    rounds = sum(int(one.timings.get("draft_rounds", 0)) for one in good)
    kept = [one for one in good if slo_ms and 1000 * one.ttft_s <= slo_ms[0] and 1000 * (one.tpot_s or 0) <= slo_ms[1]]
    return {
        "concurrency": concurrency,
        "requests": len(timed),
        "errors": len(timed) - len(good),
        "seconds": seconds,
        "tokens": sum(one.tokens for one in good),
        "tokens_per_s": sum(one.tokens for one in good) / seconds,
        "goodput": len(kept) / seconds if slo_ms else None,
        "tokens_per_step": sum(one.tokens - 1 for one in good) / rounds if rounds else None,
        "ttft_ms": percentiles([one.ttft_s for one in good]),
        "tpot_ms": percentiles(tpots),
        "itl_ms": percentiles(gaps),
        "e2e_ms": percentiles([one.end_s - one.sent_s for one in good]),
    }


def percentiles(seconds: Sequence[float]) -> dict[str, float | None]:
    """p50 and p95 in milliseconds, the nearest measured values; None where nothing was."""
    ranked = sorted(seconds)
    if not ranked:
        return {"p50": None, "p95": None}
    return {f"p{share}": 1000 * ranked[min(len(ranked) - 1, len(ranked) * share // 100)] for share in (50, 95)}


async def _point(
    config: LoadConfig, host: str, port: int, concurrency: int, prompts: Sequence[str], count: Callable[[Timed], None]
) -> list[Timed]:
    places, generator = asyncio.Semaphore(concurrency), random.Random(config.seed)

    async def ask(prompt: str, start_s: float) -> Timed:
        await asyncio.sleep(start_s)
        async with places:
            timed = await ask_once(config, host, port, prompt)
        count(timed)
        return timed

    starts, at_s = [], 0.0
    for _ in prompts:
        starts.append(at_s)
        at_s += generator.expovariate(config.rate) if config.rate else 0.0
    return list(await asyncio.gather(*(ask(prompt, start_s) for prompt, start_s in zip(prompts, starts, strict=True))))


async def ask_once(config: LoadConfig, host: str, port: int, prompt: str) -> Timed:
    """One streamed chat completion. What goes wrong is in the result."""
    body = json.dumps(
        {
            "model": config.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": config.max_tokens,
            "temperature": config.temperature,
            "seed": config.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    key = f"Authorization: Bearer {config.api_key}\r\n" if config.api_key else ""
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n{key}"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    timed = Timed(time.perf_counter())
    try:
        reader, writer = await asyncio.open_connection(host, port, limit=1 << 20)
        writer.write(head.encode() + body)
        await _read(reader, timed)
        writer.close()
    except (OSError, EOFError, ValueError) as error:
        timed.error = f"{type(error).__name__}: {error}"
    timed.end_s = time.perf_counter()
    if not timed.error and not timed.chunks_s:
        timed.error = "no text came"
    if not timed.error and not timed.tokens:  # a chunk may hold several tokens: chunks are never counted instead
        timed.error = "the server told no usage (stream_options.include_usage), so tokens cannot be counted"
    return timed


async def _read(reader: asyncio.StreamReader, timed: Timed) -> None:
    """Status, headers, then the events' lines."""
    status = (await reader.readline()).decode()
    chunked = False
    while (header := (await reader.readline()).decode().strip().lower()) != "":
        chunked |= header.startswith("transfer-encoding:") and "chunked" in header
    async for line in _lines(reader) if chunked else _plain_lines(reader):
        if " 200 " not in status:
            if line.startswith("{"):
                timed.error = f"{status.split(maxsplit=1)[1].strip()}: {reason(line)}"
        elif line == "data: [DONE]":
            return
        elif line.startswith("data:"):
            _note(json.loads(line.removeprefix("data:")), timed)
    timed.error = timed.error or f"the stream ended early ({status.strip()})"


async def _plain_lines(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    async for raw in reader:
        yield raw.decode().strip()


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    """Lines of a chunked body; one may go over several of HTTP's chunks."""
    rest = b""
    while size := int((await reader.readline()).split(b";")[0].strip() or b"0", 16):
        *whole, rest = (rest + (await reader.readexactly(size + 2))[:size]).split(b"\n")
        for raw in whole:
            yield raw.decode().strip()
    if rest:
        yield rest.decode().strip()


def _note(chunk: Mapping[str, Any], timed: Timed) -> None:
    if "error" in chunk:
        timed.error = str(chunk["error"].get("message", chunk["error"]))
    texts = [choice.get("delta", {}).get("content") for choice in chunk.get("choices") or ()]
    if any(texts):
        timed.chunks_s.append(time.perf_counter())
        timed.texts.extend(text for text in texts if text)
    if chunk.get("usage"):
        timed.tokens = int(chunk["usage"]["completion_tokens"])
    timed.timings = chunk.get("timings") or timed.timings
