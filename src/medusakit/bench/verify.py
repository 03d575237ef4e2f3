"""`medusa verify`: the exactness audit of a model with its heads, for every weight format.

Two proofs a format: the node audit (bench/audit.py), and answers with and without speculation, greedy and sampled,
token for token, each first difference judged by how close the call was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from typing import Any

from medusakit.bench.audit import KL_LIMIT, audit_nodes
from medusakit.bench.batches import answered_pairs
from medusakit.bench.circumstances import machine, model, versions
from medusakit.bench.equality import Difference, equality_summary, judge_difference
from medusakit.bench.workloads import Question, load_suite, spread
from medusakit.errors import UsageError
from medusakit.llm import LLM
from medusakit.settings import SamplingParams
from medusakit.text.chat import chat_ids

MAX_TIED_SHARE = 0.01  # of turns, where answers may part only by rounding


@dataclass(frozen=True, slots=True)
class VerifyConfig:
    """limit: questions of the suite, greedy; sampled: questions answered with temperature 0.8; nodes: audited nodes;
    rows: answers in progress at once, the runtime having room for one more."""

    suite: str = "mt-bench"
    limit: int | None = 8
    sampled: int = 4
    nodes: int = 400
    max_tokens: int = 128
    temperature: float = 0.8
    seed: int = 0
    formats: tuple[str, ...] = ("f32", "int8", "int4")
    rows: int = 1


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """Which format and proof is under way, and how much of it is done."""

    format: str
    proof: str
    done: int
    total: int


OnVerify = Callable[[VerifyProgress], None]


def run_verify(
    load: Callable[[str], LLM], config: VerifyConfig, on_progress: OnVerify = lambda progress: None
) -> dict[str, Any]:
    """Audit every format. `load(weights)` opens the model with its heads and room for `config.rows` + 1 rows.

    The document has the issue's keys; `passed` says whether each format keeps what it promises.
    Raises UsageError for a model without heads.
    """
    questions = load_suite(config.suite, limit=config.limit)
    formats: dict[str, Any] = {}
    about: dict[str, Any] = {}
    for weights in config.formats:
        llm = load(weights)
        if llm.parts.speculation.drafter is None:
            raise UsageError("nothing to verify: no heads fit this model", hint="medusa train all -m MODEL --out DIR")
        formats[weights] = verify_format(llm, weights, questions, config, on_progress)
        about = about or {"machine": machine(), "versions": versions(), "model": model(llm)}
        llm.close()
    return {
        "formats": formats,
        "passed": all(found["passed"] for found in formats.values()),
        "config": asdict(config),
        "seed": config.seed,
        **about,
    }


def verify_format(
    llm: LLM, weights: str, questions: Sequence[Question], config: VerifyConfig, on_progress: OnVerify
) -> dict[str, Any]:
    """Both proofs for a loaded model."""
    prompts = [chat_ids(llm.tokenizer, [{"role": "user", "content": question.turns[0]}]) for question in questions]
    nodes = audit_nodes(
        llm.engine,
        prompts,
        num_nodes=config.nodes,
        on_node=lambda done: on_progress(VerifyProgress(weights, "nodes", done, config.nodes)),
    )
    greedy = SamplingParams(max_tokens=config.max_tokens, seed=config.seed)
    sampled = replace(greedy, temperature=config.temperature)
    equal = _answers(llm, weights, "greedy", questions, greedy, config.rows, on_progress)
    drawn = _answers(llm, weights, "sample", spread(questions, config.sampled), sampled, config.rows, on_progress)
    tokens = equal["tokens"] + drawn["tokens"]
    parted = sum(found["turns"] - found["equal"] for found in (equal, drawn))
    found = {
        **asdict(nodes),
        "greedy": equal,
        "sample": drawn,
        "flips_per_1000": 1000 * parted / tokens if tokens else 0.0,
        "exact": llm.runtime.capabilities.exact,
    }
    return {**found, "passed": _passed(found)}


def _answers(
    llm: LLM,
    weights: str,
    proof: str,
    questions: Sequence[Question],
    params: SamplingParams,
    rows: int,
    on_progress: OnVerify,
) -> dict[str, Any]:
    total = sum(len(question.turns) for question in questions)
    done = count(1)

    def on_turn() -> None:
        on_progress(VerifyProgress(weights, proof, next(done), total))

    differences: list[Difference | None] = []
    tokens = 0
    for pair in answered_pairs(llm, questions, params, rows, on_turn):
        differences.append(judge_difference(llm, pair.where, pair.prompt_ids, pair.plain, pair.medusa, params))
        tokens += len(pair.plain)
    return {**equality_summary(differences), "tokens": tokens}


def _passed(found: dict[str, Any]) -> bool:
    """fp32 promises KL <= 1e-8 at every node and ties in at most 1 % of turns; the others only ties, reported.

    Nothing passes of which no node was seen.
    """
    answers = (found["greedy"], found["sample"])
    if found["nodes"] == 0 or any(proof["different"] for proof in answers):
        return False
    if found["exact"] != "bitwise-ties":
        return True
    turns, tied = (sum(proof[key] for proof in answers) for key in ("turns", "tied"))
    return bool(found["kl_max"] <= KL_LIMIT and tied <= max(1, MAX_TIED_SHARE * turns))
