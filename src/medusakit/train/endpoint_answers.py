"""Stage 2 from afar: a server answers the seeds, many at once; the answers go into a file that `capture` reads.

A line of the file is one finished conversation (answers.py), written as it ends, so a run that was cut goes on after
them. The server's text is turned into token ids by the local tokenizer: an answer that does not come back from them
letter by letter, or that the local template does not hold as it is, is left out, and a server whose counts of tokens
mostly differ has another tokenizer and is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from pydantic import BaseModel, ConfigDict, Field

from medusakit.artifact.files import make_folder, write_atomic
from medusakit.errors import DatasetError, UsageError
from medusakit.text.chat import conversation_ids
from medusakit.text.tokenizer import Tokenizer
from medusakit.train.distill import DistillConfig
from medusakit.train.endpoint import Endpoint, Said
from medusakit.train.interrupt import deferred_interrupt
from medusakit.train.progress import Meter, OnProgress, ignore
from medusakit.train.shards import group_of
from medusakit.train.templates import Conversation

_ENOUGH = 16  # answers before the counts of tokens are judged
_AGREE = 0.5  # share of answers whose count must be that of the local tokenizer, up to the end token


class EndpointConfig(BaseModel):
    """Who answers. api_key_env: name of the variable that holds the key; the key itself is stored nowhere."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    url: str
    model: str = ""
    api_key_env: str = ""
    concurrency: int = Field(default=16, ge=1, le=1024)
    retries: int = Field(default=6, ge=0)


def endpoint_of(config: EndpointConfig, env: Mapping[str, str] = os.environ) -> Endpoint:
    """The server with its key. Raises UsageError if the variable of the key is not set."""
    key = env.get(config.api_key_env, "") if config.api_key_env else ""
    if config.api_key_env and not key:
        raise UsageError(f"the variable {config.api_key_env} holds no API key", hint=f"export {config.api_key_env}=...")
    return Endpoint(config.url, config.model, key, retries=config.retries)


@dataclass(slots=True)
class RemoteReport:
    """Of the whole file but for `dropped` (this run): conversations, tokens, answers left out by reason."""

    num: int = 0
    num_tokens: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    judged: int = 0
    agreed: int = 0

    def drop(self, reason: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1


def answer_remotely(
    endpoint: Endpoint,
    tokenizer: Tokenizer,
    seeds: Sequence[Conversation],
    out: Path,
    config: DistillConfig,
    *,
    concurrency: int = 16,
    on_progress: OnProgress = ignore,
) -> RemoteReport:
    """Have `seeds` answered into `out`, after those that it holds. Ctrl-C keeps what was answered.

    Raises what `Endpoint.chat` raises; DatasetError if the server's tokenizer is another one, or nothing came.
    """
    endpoint = endpoint.checked()
    make_folder(out.parent)
    done, report = _resume(out)
    total = config.max_tokens or len(seeds)
    meter = Meter("distill", total, on_progress, unit="tokens" if config.max_tokens else "conversations")
    wanted = (seed for seed in seeds if seed.turns[0] not in done)
    with out.open("a", encoding="utf-8") as file, deferred_interrupt() as pressed:
        for seed, gens in _answered(endpoint, tokenizer, wanted, config, report, concurrency):
            if gens:
                _write(file, seed, gens)
                report.num, report.num_tokens = report.num + 1, report.num_tokens + sum(map(len, gens))
            meter.report(report.num_tokens if config.max_tokens else report.num, f"{report.num:,} conversations")
            if pressed():
                raise KeyboardInterrupt
    if not report.num:
        message = f"no answer of {endpoint.url} could be used: {report.dropped or 'no seeds'}"
        raise DatasetError(message, hint="check that -m and --endpoint-model are the same model, and the prompts")
    meter.finish(total, _summary(report))
    return report


def end_id(tokenizer: Tokenizer) -> int | None:
    """The token with which the local template ends an answer; None if it writes none."""
    mark = "answer"
    ids = conversation_ids(tokenizer, ["question", "more"], [tokenizer.encode(mark)])
    ends = [token for token in ids if token in tokenizer.eos_ids]
    return ends[-1] if ends else min(tokenizer.eos_ids, default=None)


def _answered(
    endpoint: Endpoint,
    tokenizer: Tokenizer,
    seeds: Iterator[Conversation],
    config: DistillConfig,
    report: RemoteReport,
    concurrency: int,
) -> Iterator[tuple[Conversation, list[list[int]]]]:
    """Conversations with their answers as they end, `concurrency` of them open at once."""
    open_: dict[Future[list[Said]], Conversation] = {}
    end = end_id(tokenizer)
    with ThreadPoolExecutor(concurrency) as pool:
        try:
            while True:
                while len(open_) < concurrency and not _is_enough(report, config):
                    if (seed := next(seeds, None)) is None:
                        break
                    open_[pool.submit(_converse, endpoint, seed, config, _params(tokenizer, seed, config))] = seed
                if not open_:
                    return
                for future in wait(open_, return_when=FIRST_COMPLETED).done:
                    seed = open_.pop(future)
                    yield seed, _checked(tokenizer, seed, future.result(), end, report)
        finally:
            for future in open_:
                future.cancel()


def _is_enough(report: RemoteReport, config: DistillConfig) -> bool:
    return bool(config.max_tokens) and report.num_tokens >= config.max_tokens


def _params(tokenizer: Tokenizer, seed: Conversation, config: DistillConfig) -> dict[str, Any]:
    """Greedy or sampled, decided by the prompt as in answering.py, so that a restart decides alike."""
    import numpy as np

    group = group_of(conversation_ids(tokenizer, seed.turns[:1], ()))
    rng = np.random.default_rng((config.seed, group))
    temperature = config.temperature if rng.random() < config.sampled_share else 0.0
    return {"temperature": temperature, "seed": int(rng.integers(1 << 31))}


def _converse(endpoint: Endpoint, seed: Conversation, config: DistillConfig, params: Mapping[str, Any]) -> list[Said]:
    messages: list[dict[str, str]] = []
    said: list[Said] = []
    for turn in seed.turns:
        messages.append({"role": "user", "content": turn})
        said.append(endpoint.chat(messages, max_tokens=config.max_new_tokens, **params))
        messages.append({"role": "assistant", "content": said[-1].text})
    return said


def _checked(
    tokenizer: Tokenizer, seed: Conversation, said: Sequence[Said], end: int | None, report: RemoteReport
) -> list[list[int]]:
    """Token ids of the answers up to the first that cannot be used."""
    gens: list[list[int]] = []
    for turn, answer in enumerate(said):
        ids = tokenizer.encode(answer.text)
        reason = _unusable(tokenizer, seed.turns[: turn + 1], gens, answer.text, ids)
        if reason:
            report.drop(reason)
            break
        _judge(answer, len(ids), report)
        gens.append([*ids, end] if answer.ended and end is not None else ids)
    return gens


def _unusable(tokenizer: Tokenizer, turns: Sequence[str], gens: Sequence[list[int]], text: str, ids: list[int]) -> str:
    if not ids:
        return "empty"
    if "\ufffd" in text:  # bytes of no character, or of half a one where the answer was cut: the tokens are lost
        return "characters replaced"
    if tokenizer.decode(ids) != text:
        return "other text after tokenising"
    asked = conversation_ids(tokenizer, turns, gens)
    held = conversation_ids(tokenizer, [*turns, "?"], [*gens, ids])
    return "" if held[: len(asked) + len(ids)] == [*asked, *ids] else "changed by the chat template"


def _judge(answer: Said, num_ids: int, report: RemoteReport) -> None:
    """Sampled text may be cut into other tokens than it was made of, and end tokens count or not: few may differ."""
    if answer.num_tokens:
        report.judged += 1
        report.agreed += abs(answer.num_tokens - num_ids) <= 1
    if report.judged >= _ENOUGH and report.agreed < _AGREE * report.judged:
        raise DatasetError(
            f"the server counts other tokens than the local tokenizer in {report.judged - report.agreed} of "
            f"{report.judged} answers: it serves a model with another vocabulary",
            hint="-m and --endpoint-model must be the same model",
        )


def _resume(out: Path) -> tuple[set[str], RemoteReport]:
    """First prompts that are answered. A line that a kill cut short is removed."""
    report, done = RemoteReport(), set[str]()
    if not out.exists():
        return done, report
    whole = out.read_bytes().rpartition(b"\n")
    if whole[2]:
        write_atomic(out, whole[0] + whole[1])
    for line in whole[0].decode("utf-8").split("\n"):
        if line.strip():
            entry = json.loads(line)
            done.add(entry["turns"][0])
            report.num, report.num_tokens = report.num + 1, report.num_tokens + sum(map(len, entry["gens"]))
    return done, report


def _write(file: TextIO, seed: Conversation, gens: Sequence[Sequence[int]]) -> None:
    entry = {"turns": seed.turns[: len(gens)], "gens": gens, "source": seed.source, "license": seed.license}
    file.write(json.dumps(entry, ensure_ascii=False, separators=(",", ":")) + "\n")
    file.flush()


def _summary(report: RemoteReport) -> str:
    left_out = ", ".join(f"{count} {reason}" for reason, count in sorted(report.dropped.items()))
    found = f"{report.num_tokens:,} tokens of {report.num:,} conversations"
    return f"{found}; left out: {left_out}" if left_out else found
