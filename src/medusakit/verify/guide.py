"""What a grammar knows of an answer before the model is asked: drafts without forbidden nodes, with forced tokens.

A forced text (a key, punctuation, the rest of an enum's value) can be cut into tokens in several ways and the model
chooses among them, so forced tokens are guesses like all others, only better ones: every one is verified.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from medusakit.tree.topology import Draft, Topology
from medusakit.verify.grammar import FormVocabulary

MAX_FORCED = 32  # tokens of one forced text that are offered; what is left of it comes with the next steps
MAX_FORCED_BYTES = 512  # of it that are cut into tokens: a schema may force thousands, at every step again
# The last token of a forced text may be a longer one, which begins what is free: ` "` or ` "A`.
LAST = math.log(0.6)
LEAST = math.log(0.05)  # path probability under which a node is not worth the question what it forces

Chain = tuple[tuple[int, float], ...]


class Guiding:
    """One draft being walked together with a matcher, which is at the root and is there again afterwards."""

    def __init__(self, draft: Draft, matcher: Any, vocabulary: FormVocabulary) -> None:
        self._matcher, self._vocabulary = matcher, vocabulary
        self._old_tokens, self._old_logprobs = draft.tokens.tolist(), draft.logprobs.tolist()
        self._old_children: Sequence[Sequence[int]] = draft.topology.children
        self._evidence = draft.evidence
        self._tokens, self._logprobs, self._parents = [self._old_tokens[0]], [0.0], [-1]

    def draft(self) -> Draft:
        """Nodes in depth-first order, what is forced before its siblings."""
        self._visit(0, 0, (), 0.0)
        tokens, logprobs = np.array(self._tokens, np.int64), np.array(self._logprobs, np.float32)
        return Draft(Topology.from_parents(self._parents), tokens, logprobs, self._evidence)

    def _visit(self, node: int, old: int | None, chain: Chain, worth: float) -> None:
        """old: the node of the given draft that `node` is. chain: tokens that are forced from here, as known already.
        worth: log-probability of the path."""
        if not chain and worth >= LEAST:
            chain = self._forced()
        guesses = {self._old_tokens[child]: child for child in self._old_children[old]} if old is not None else {}
        ending = self._matcher.is_stopped()
        for token, logprob in chain[:1] if not ending else chain:
            self._step(node, guesses.pop(token, None), token, logprob, chain[1:], worth)
        for token, child in guesses.items():
            self._step(node, child, token, self._old_logprobs[child], (), worth)

    def _step(self, parent: int, old: int | None, token: int, logprob: float, chain: Chain, worth: float) -> None:
        """Add the node and what hangs on it, unless the grammar forbids it."""
        if token in self._vocabulary.ends:
            if self._matcher.is_accepting():
                self._add(parent, token, logprob)  # and nothing after it
            return
        if self._matcher.is_stopped() or not self._matcher.try_consume_tokens([token]):
            return
        self._visit(self._add(parent, token, logprob), old, chain, worth + logprob)
        self._matcher.rollback(1)

    def _add(self, parent: int, token: int, logprob: float) -> int:
        self._tokens.append(token)
        self._logprobs.append(logprob)
        self._parents.append(parent)
        return len(self._tokens) - 1

    def _forced(self) -> Chain:
        """The tokens one after the other; where the document is whole, the ends beside each other."""
        if self._matcher.is_stopped():
            ends = self._vocabulary.ends
            return tuple((token, -math.log(len(ends))) for token in ends)
        text = self._matcher.compute_ff_bytes()[:MAX_FORCED_BYTES]
        tokens = self._vocabulary.tokens_of(text) if text else []
        return tuple((token, LAST if place == len(tokens) - 1 else 0.0) for place, token in enumerate(tokens))[
            :MAX_FORCED
        ]
