"""transformers' logits processors, sampling and stopping criteria as an acceptance rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from medusakit.runtimes.base import Scores
from medusakit.verify.base import Acceptance, Verdict


class ProcessorRule:
    """One token a visited node, as transformers' own loop takes it: processors over the ids so far, then the best token
    or one draw of the global generator, then the stopping criteria. The nodes of an accepted path are visited in order,
    each once, so that processors with a memory and the generator see what they would see without trees.

    ids      [1, n] prompt and answer
    stopped  the criteria ended the answer; nothing is decided after that
    """

    name, lossless, path_weight = "transformers", True, 0.0

    def __init__(self, ids: Any, processors: Any, criteria: Any, *, sample: bool) -> None:
        self.ids, self.stopped = ids, False
        self._processors, self._criteria, self._sample = processors, criteria, sample
        self._shown = ids.shape[1]

    def after(self, offered: int, accepted: int) -> Acceptance:
        return self

    def decide(self, scores: Scores, node: int, children: Sequence[tuple[int, int]], history: Sequence[int]) -> Verdict:
        logits = torch.tensor(scores.logits(node), device=self.ids.device)[None]
        adjusted = self._processors(self.ids, logits)
        if self._sample:
            token = torch.multinomial(torch.nn.functional.softmax(adjusted, dim=-1), num_samples=1)
        else:
            token = torch.argmax(adjusted, dim=-1, keepdim=True)
        self.ids = torch.cat([self.ids, token], dim=-1)
        self.stopped = bool(self._criteria(self.ids, None).all())
        pick = int(token)
        return Verdict(() if self.stopped else tuple(child for child, at in children if at == pick), pick)

    def listed(self) -> list[int]:
        """Prompt and answer so far."""
        ids: list[int] = self.ids[0].tolist()
        return ids

    def fresh(self) -> list[Any]:
        """Tokens since the last call, [1] each on the CPU, as streamers take them."""
        new = self.ids[0, self._shown :].cpu()
        self._shown = self.ids.shape[1]
        return list(new.split(1))
