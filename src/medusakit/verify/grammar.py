"""Answers in a given form: a grammar masks the scores of every node along the path that is walked.

The mask comes before the request's own rule, so plain and speculative decoding still give one sequence, and a drafted
token that the grammar forbids is simply not accepted. The grammars are llguidance's, an optional dependency.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from medusakit.errors import MissingExtraError, RuntimeFailure, UsageError
from medusakit.runtimes.base import Scores
from medusakit.text.tokenizer import Tokenizer
from medusakit.tree.topology import FloatArray, IntArray
from medusakit.verify.base import Acceptance, Verdict
from medusakit.verify.history import PathHistory

# One way to write a document, as models mostly do: free whitespace would let an answer never end.
LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


class Grammars:
    """Grammars over one vocabulary, which is prepared at the first use. Safe to share between threads."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._tokenizer, self._vocab_size = tokenizer, vocab_size
        self._lock = threading.Lock()
        self._prepared: Any = None

    def json_schema(self, schema: Mapping[str, Any] = ANY_OBJECT) -> Grammar:
        """Documents of a JSON schema. Raises UsageError for a schema that is none or asks for what is not known,
        MissingExtraError without llguidance."""
        llguidance = _llguidance()
        vocabulary = self._vocabulary(llguidance)
        try:
            text = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema), LAYOUT)
            problem = llguidance.LLMatcher.validate_grammar(text, vocabulary)
        except ValueError as error:
            problem = str(error)
        if problem and not problem.startswith("WARNING"):
            raise UsageError(f"the JSON schema cannot be followed: {problem[:300]}", hint='{"type": "object"}')
        return Grammar(text, vocabulary)

    def _vocabulary(self, llguidance: Any) -> Any:
        with self._lock:
            if self._prepared is None:
                wrapped = llguidance.TokenizerWrapper(_Vocabulary(self._tokenizer, self._vocab_size))
                self._prepared = llguidance.LLTokenizer(wrapped, eos_token=sorted(self._tokenizer.eos_ids))
        return self._prepared


@dataclass(frozen=True, slots=True)
class Grammar:
    """text: as llguidance writes it. Compared by it, so that equal requests are equal."""

    text: str
    vocabulary: Any = field(repr=False, compare=False)

    def matcher(self) -> Any:
        """A fresh one, for one answer."""
        return _llguidance().LLMatcher(self.vocabulary, self.text, log_level=0)


class GrammarRule:
    """Another exact rule, which sees only what the grammar allows. Keeps the state of one sequence."""

    path_weight = 0.0

    def __init__(self, rule: Acceptance, grammar: Grammar, num_prompt_tokens: int) -> None:
        self._rule, self._matcher = rule, grammar.matcher()
        self._num_prompt = num_prompt_tokens
        self._ends = np.array(grammar.vocabulary.eos_tokens, dtype=np.int64)
        self._taken: list[int] = []
        self._certain = 0  # of these, emitted: they never change

    @property
    def name(self) -> str:
        return self._rule.name

    @property
    def lossless(self) -> bool:
        return self._rule.lossless

    def after(self, offered: int, accepted: int) -> GrammarRule:
        return self

    def decide(self, scores: Scores, node: int, children: Sequence[tuple[int, int]], history: Sequence[int]) -> Verdict:
        if len(history) > self._num_prompt and history[-1] in self._ends:
            return Verdict((), history[-1])  # of a drafted end: nothing after it is emitted
        self._follow(history)
        return self._rule.decide(MaskedScores(scores, self._allowed()), node, children, history)

    def _allowed(self) -> IntArray:
        """Token ids. Where the document is whole and cannot go on, the matcher has stopped: the answer ends."""
        if self._matcher.is_stopped() and not self._matcher.is_error():
            return self._ends
        bits = np.unpackbits(np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8), bitorder="little")
        if self._matcher.is_error() or not bits.any():
            raise RuntimeFailure(
                f"the grammar cannot go on: {self._matcher.get_error()[:300]}", hint="a simpler schema"
            )
        return np.flatnonzero(bits)

    def _follow(self, history: Sequence[int]) -> None:
        """Bring the grammar to the state after `history`, taking back what another path had brought it to."""
        base = history.base if isinstance(history, PathHistory) else history
        fresh = history[self._num_prompt + self._certain :]
        same = 0
        for ours, theirs in zip(self._taken[self._certain :], fresh, strict=False):
            if ours != theirs:
                break
            same += 1
        surplus = len(self._taken) - self._certain - same
        if surplus:
            self._matcher.rollback(surplus)
            del self._taken[-surplus:]
        if fresh[same:]:
            self._matcher.consume_tokens(list(fresh[same:]))
            self._taken += fresh[same:]
        self._certain = min(len(self._taken), max(0, len(base) - self._num_prompt))


@dataclass(frozen=True, slots=True)
class MaskedScores:
    """Scores in which tokens but these have minus infinity. allowed: token ids, ascending."""

    scores: Scores
    allowed: IntArray

    @property
    def num_nodes(self) -> int:
        return self.scores.num_nodes

    def argmax(self, node: int) -> int:
        return int(self.logits(node).argmax())

    def logits(self, node: int) -> FloatArray:
        logits = self.scores.logits(node)
        masked = np.full(len(logits), -np.inf, dtype=np.float32)
        masked[self.allowed] = logits[self.allowed]
        return masked

    def hidden(self, node: int) -> FloatArray:
        return self.scores.hidden(node)


class _Vocabulary:
    """What llguidance wants to know of a tokenizer. Ids beyond the vocabulary have no bytes and are never allowed."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        known = range(min(tokenizer.vocab_size, vocab_size))
        self.special_token_ids = sorted(token for token in tokenizer.special_ids if token in known)
        self.tokens = [b"" if token in tokenizer.special_ids else tokenizer.token_bytes(token) for token in known]
        self.tokens += [b""] * (vocab_size - len(self.tokens))
        for token in self.special_token_ids:
            self.tokens[token] = b"\xff" + tokenizer.token_bytes(token)  # llguidance's mark for control tokens
        self.eos_token_id = min(tokenizer.eos_ids, default=0)
        self.bos_token_id = tokenizer.bos_id
        self._tokenizer = tokenizer

    def __call__(self, text: str | bytes) -> list[int]:
        return self._tokenizer.encode(text if isinstance(text, str) else text.decode("utf-8", "replace"))


def _llguidance() -> Any:
    try:
        import llguidance
    except ImportError:
        message = "answers in a given form need llguidance, which is not installed"
        raise MissingExtraError(message, hint="pip install 'medusakit[grammar]'") from None
    return llguidance
