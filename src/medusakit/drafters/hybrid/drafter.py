"""`hybrid`: heads, matches of the text and whatever else guesses, as one drafter whose odds are calibrated."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from medusakit.drafters.base import Drafter, DraftState, show_step
from medusakit.drafters.hybrid.calibration import Calibration, Probs
from medusakit.drafters.hybrid.merge import Said, merge
from medusakit.drafters.hybrid.worth import DraftWorth
from medusakit.drafters.trie import Guess, grow
from medusakit.runtimes.base import Scores
from medusakit.tree.cost import Rate
from medusakit.tree.topology import Beam, Draft, FloatArray, Shape, Topology, Tree

NAME = "hybrid"
_KINDS = 8  # of evidence: matches of 0, 1, 2, 3, 4-5, 6-10, 11-20 and more tokens
_NEVER = 1e-30  # probability of what has one so small that it came out as 0
_EVIDENCE = (1, 2, 3, 4, 6, 11, 21)


@dataclass(frozen=True, slots=True)
class Source:
    """exponents: per depth, p ** exponent is the acceptance that calibration measured where the drafter said p.
    costly: a draft takes the model's kernels, so it is asked only as deep as it pays."""

    drafter: Drafter
    beam: Beam
    exponents: Sequence[float] = ()
    costly: bool = False


@dataclass(frozen=True, slots=True)
class _Step:
    """What was drafted for a row when it held `length` ids.

    masks     of the merged nodes
    best      the best probability of a next token among the sources that cost nothing
    asked     whether the costly source drafted
    """

    length: int
    said: list[Said]
    merged: Said
    masks: Sequence[int]
    best: float
    asked: bool


class HybridDrafter:
    """Sources in the order given; the costly one, if any, is last.

    Probabilities are calibrated twice: each source's own (by depth, probability and evidence), then the merged node's,
    by which sources guess it: what only one of them says comes true less often than what they agree on.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        rate: Rate | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._free = [source for source in sources if not source.costly]
        costly = [source for source in sources if source.costly]
        if len(costly) > 1:
            raise ValueError(f"at most one source may be costly, got {[source.drafter.name for source in costly]}")
        self._costly = costly[0] if costly else None
        self._sources = [*self._free, *costly]
        self._exponents = [_exponents(source) for source in self._sources]
        self._calibrations = [Calibration(_KINDS) for _ in self._sources]
        self._agreement = Calibration(1 << len(self._sources))
        self._worth = DraftWorth()
        self._rate, self._clock = rate or Rate(), clock
        self._last: dict[int, _Step] = {}
        self._accepted: dict[int, int] = {}
        self.name = NAME if len(self._sources) > 1 else self._sources[0].drafter.name
        self.max_depth = max(source.drafter.max_depth for source in self._sources)

    @property
    def rate(self) -> Rate:
        """Tokens a second of late, which the policy of its trees keeps up to date."""
        return self._rate

    @property
    def beam(self) -> Beam:
        """What a policy asks for: as deep as the deepest source."""
        return max((source.beam for source in self._sources), key=lambda beam: len(beam.widths))

    @property
    def alone(self) -> Drafter:
        """The best source by itself: the costly one, else the first."""
        return self._sources[-1].drafter if self._costly else self._sources[0].drafter

    def propose(self, states: Sequence[DraftState], shape: Shape) -> list[Draft]:
        for state in states:
            self._learn(state)
        drafts = [source.drafter.propose(states, source.beam) for source in self._free]
        free = [[self._said(index, row) for index, row in enumerate(rows)] for rows in zip(*drafts, strict=True)]
        free = free or [[] for _ in states]
        best = [_best(said) for said in free]
        costly = self._costly_drafts(states, best)
        found = []
        for state, said, extra, prob in zip(states, free, costly, best, strict=True):
            step = self._merged(state, said, extra, prob)
            self._last[state.row] = step
            found.append(_shaped(step.merged, shape))
        return found

    def observe(self, row: int, kept_ids: Sequence[int], hidden: FloatArray) -> None:
        self._accepted[row] = len(kept_ids) - 1
        for source in self._sources:
            source.drafter.observe(row, kept_ids, hidden)

    def read_step(self, row: int, tree: Tree, kept: Sequence[int], scores: Scores) -> None:
        for source in self._sources:
            show_step(source.drafter, row, tree, kept, scores)

    def forget(self, row: int) -> None:
        self._last.pop(row, None)
        self._accepted.pop(row, None)
        for source in self._sources:
            source.drafter.forget(row)

    def reset(self) -> None:
        """As if nothing had been drafted yet."""
        for calibration in (*self._calibrations, self._agreement):
            calibration.reset()
        self._worth.reset()
        self._last.clear()

    def _said(self, index: int, draft: Draft) -> Said:
        probs = np.exp((draft.logprobs * self._exponents[index][draft.topology.depths]).astype(np.float64))
        kind = sum(draft.evidence >= edge for edge in _EVIDENCE)
        return Said.of(draft, probs, kind, self._calibrations[index])

    def _costly_drafts(self, states: Sequence[DraftState], best: Sequence[float]) -> list[list[Said]]:
        """Per row, the costly source's draft, if it is worth asking."""
        source = self._costly
        asks = [source is not None and self._worth.asks(prob, self._rate) for prob in best]
        asked = [state for state, asking in zip(states, asks, strict=True) if asking]
        if source is None or not asked:
            return [[] for _ in states]
        started = self._clock()
        beam = replace(source.beam, least=self._worth.least(self._rate))
        drafts = iter(source.drafter.propose(asked, beam))
        seconds = self._clock() - started
        self._worth.took(seconds)
        self._rate.add(0.0, seconds)
        return [[self._said(len(self._free), next(drafts))] if asking else [] for asking in asks]

    def _merged(self, state: DraftState, free: list[Said], costly: list[Said], best: float) -> _Step:
        said = [*free, *costly]
        draft, probs, masks = merge(state.root_id, [(part.draft, part.corrected()) for part in said])
        whole = Said.of(draft, probs, masks, self._agreement)
        return _Step(len(state.ids), said, whole, masks.tolist(), best, bool(costly))

    def _learn(self, state: DraftState) -> None:
        """From the tokens that came since the row's last draft."""
        step = self._last.pop(state.row, None)
        came = state.ids[step.length :] if step else ()
        if step is None or not came:
            return
        for said in step.said:
            said.judge(came)
        path = step.merged.judge(came)
        if step.asked:
            accepted = path[: self._accepted.get(state.row, 0)]
            alone = 1 << len(self._free)
            first = next((depth for depth, node in enumerate(accepted) if step.masks[node] == alone), len(accepted))
            self._worth.learn(step.best, len(accepted) - first)


def _exponents(source: Source) -> FloatArray:
    depth = len(source.beam.widths)
    given = [*source.exponents, *[1.0] * depth][:depth]
    return np.array([1.0, *given], np.float32)


def _best(said: Sequence[Said]) -> float:
    """The best corrected probability of a token right after the root."""
    best = 0.0
    for part in said:
        first = part.corrected()[part.draft.topology.depths == 1]
        best = max(best, float(first.max())) if len(first) else best
    return best


def _shaped(merged: Said, shape: Shape) -> Draft:
    probs: Probs = merged.corrected()
    probs[0] = 1.0
    logprobs = np.log(np.maximum(probs, _NEVER)).astype(np.float32)
    draft = Draft(merged.draft.topology, merged.draft.tokens, logprobs)
    return _filled(draft, shape) if isinstance(shape, Topology) else draft


def _filled(draft: Draft, shape: Topology) -> Draft:
    """Exactly the nodes of a given tree: the most probable children first."""
    children, tokens, probs = draft.topology.children, draft.tokens.tolist(), np.exp(draft.logprobs).tolist()

    def guesses(node: int, limit: int) -> list[Guess[int]]:
        best = sorted(children[node], key=lambda child: -probs[child])[:limit]
        return [Guess(tokens[child], probs[child], child) for child in best]

    return grow(int(tokens[0]), 0, guesses, shape)
