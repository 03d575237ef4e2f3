"""Do two modes say the same? Where not, how close the call was (docs/concepts.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from medusakit.llm import LLM
from medusakit.settings import SamplingParams
from medusakit.tree.topology import Tree
from medusakit.verify.gap import score_gap
from medusakit.verify.rules import make_rule

# two runs may part only where the two tokens are this close in what the rule compares
TOLERANCE = {"bitwise-ties": 1e-3, "numerical-ties": 0.15}


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where two answers part.

    gap     distance of the two tokens in what the rule compares there; tied: within the tolerance
    spread  standard deviation of all logits there: rounding noise grows with it, so a gap is read beside it
    """

    where: str
    position: int
    left_id: int | None
    right_id: int | None
    gap: float
    spread: float
    tied: bool


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Index of the first differing token (a missing one differs), None if equal.

    >>> first_difference([1, 2], [1, 2, 3])
    2
    """
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return None if len(left) == len(right) else min(len(left), len(right))


def judge_difference(
    llm: LLM, where: str, prompt_ids: Sequence[int], left: Sequence[int], right: Sequence[int], params: SamplingParams
) -> Difference | None:
    """None if the answers are equal; else the first difference, with the gap in plain decoding's own scores there.

    The common part is decoded plainly again, one token a pass as `plain` does it: formats that quantise activations
    give other scores in a pass over many tokens, and which call was close is asked of the scores that made it.
    """
    index = first_difference(left, right)
    if index is None:
        return None
    left_id = left[index] if index < len(left) else None
    right_id = right[index] if index < len(right) else None
    if left_id is None or right_id is None or params.acceptance != "exact":  # a lossy rule compares no scores
        return Difference(where, index, left_id, right_id, float("inf"), 0.0, False)
    gap, spread = _gap_at(llm, list(prompt_ids), list(left[:index]), left_id, right_id, params)
    return Difference(where, index, left_id, right_id, gap, spread, gap <= TOLERANCE[llm.runtime.capabilities.exact])


def equality_summary(differences: Sequence[Difference | None]) -> dict[str, Any]:
    """The issue's keys: turns, equal, tied, different, and every first difference."""
    found = [difference for difference in differences if difference is not None]
    tied = sum(difference.tied for difference in found)
    return {
        "turns": len(differences),
        "equal": len(differences) - len(found),
        "tied": tied,
        "different": len(found) - tied,
        "first_differences": [asdict(difference) for difference in found],
    }


def _gap_at(
    llm: LLM, prompt: list[int], answer: list[int], left_id: int, right_id: int, params: SamplingParams
) -> tuple[float, float]:
    """(gap, spread) in plain decoding's scores after `answer`."""
    rule = make_rule(
        params, seed=params.seed or 0, vocab_size=llm.runtime.spec.vocab_size, num_prompt_tokens=len(prompt)
    )
    history = prompt + answer
    row = llm.runtime.add_row()
    try:
        scores = llm.runtime.prefill(row, prompt)
        for token in answer:
            (scores,) = llm.runtime.forward([(row, Tree.plain(token))])
            llm.runtime.commit(row, [0])
        logits = scores.logits(0)
        return score_gap(rule, logits, history, left_id, right_id), float(logits.std())
    finally:
        llm.runtime.drop_row(row)
