"""Scores of a prompt's own tokens, from passes that give the logits of every position: a chain is a tree too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from medusakit.engine.events import TokenScore
from medusakit.runtimes.base import Runtime, Scores
from medusakit.tree.topology import FloatArray, Tree
from medusakit.verify.report import token_logprobs

CHAIN = 64  # positions a pass: each has logits of the whole vocabulary


def score_prompt(
    runtime: Runtime, row: int, ids: Sequence[int], follow: Sequence[int], num_top: int, into: list[TokenScore]
) -> Scores:
    """Append `ids` to the row, like `Runtime.prefill`, and to `into` the scores of the tokens that follow each.

    follow  the prompt's tokens after each of `ids`; one fewer at the prompt's end
    """
    last: Scores | None = None
    for start in range(0, len(ids), CHAIN):
        part = ids[start : start + CHAIN]
        [scores] = runtime.forward([(row, Tree.chain(part))])
        for node, token_id in enumerate(follow[start : start + CHAIN][: len(part)]):
            into.append(TokenScore(*token_logprobs(scores.logits(node), token_id, num_top)))
        runtime.commit(row, range(len(part)))
        last = _LastNode(scores, len(part) - 1)
    assert last is not None, "a prompt has tokens"
    return last


@dataclass(frozen=True, slots=True)
class _LastNode:
    """The scores of one node, as node 0."""

    scores: Scores
    node: int
    num_nodes: int = 1

    def argmax(self, node: int) -> int:
        return self.scores.argmax(self.node)

    def logits(self, node: int) -> FloatArray:
        return self.scores.logits(self.node)

    def hidden(self, node: int) -> FloatArray:
        return self.scores.hidden(self.node)
