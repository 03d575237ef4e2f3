"""What came before a node: `PathHistory`, a sequence plus the tokens of a path; `TokenCounts`, what occurs in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from medusakit.tree.topology import FloatArray, IntArray


class PathHistory(Sequence[int]):
    """`base` followed by the few tokens of a path, without copying `base`."""

    __slots__ = ("base", "tail")

    def __init__(self, base: Sequence[int], tail: tuple[int, ...]) -> None:
        self.base = base
        self.tail = tail

    def __len__(self) -> int:
        return len(self.base) + len(self.tail)

    def __iter__(self) -> Iterator[int]:
        yield from self.base
        yield from self.tail

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> list[int]: ...

    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        offset = index + len(self) if index < 0 else index
        if not 0 <= offset < len(self):
            raise IndexError(f"position {index} of a history of {len(self)} tokens")
        split = len(self.base)
        return self.base[offset] if offset < split else self.tail[offset - split]


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens that occur in a sequence.

    ids     [m] int64, distinct, ascending: every token of prompt and output
    output  [m] float32, how often each occurs in the output alone
    """

    ids: IntArray
    output: FloatArray

    def plus(self, token_ids: Sequence[int], num_prompt: int) -> Counts:
        """With more tokens, of which the first `num_prompt` still belong to the prompt."""
        weights = np.ones(len(token_ids), dtype=np.float32)
        weights[:num_prompt] = 0
        ids, slots = np.unique(np.concatenate([self.ids, np.asarray(token_ids, dtype=np.int64)]), return_inverse=True)
        output = np.bincount(slots, np.concatenate([self.output, weights]), minlength=len(ids))
        return Counts(ids, output.astype(np.float32))


NONE_SEEN = Counts(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))


class TokenCounts:
    """The `Counts` of one sequence, kept up to date as it grows: a step costs the tokens it added, not all of them.

    The cache is only a cache: another list, a shorter one, or one that ends otherwise is counted afresh.
    """

    def __init__(self, num_prompt_tokens: int) -> None:
        self._num_prompt_tokens = num_prompt_tokens
        self._base: Sequence[int] = ()
        self._num_absorbed = 0
        self._last = -1
        self._counts = NONE_SEEN

    def at(self, history: Sequence[int]) -> Counts:
        base, tail = (history.base, history.tail) if isinstance(history, PathHistory) else (history, ())
        self._catch_up(base)
        return self._counts.plus(tail, max(0, self._num_prompt_tokens - len(base))) if tail else self._counts

    def _catch_up(self, base: Sequence[int]) -> None:
        seen = self._num_absorbed
        if base is not self._base or len(base) < seen or (seen and base[seen - 1] != self._last):
            seen, self._counts = 0, NONE_SEEN
        if len(base) > seen:
            self._counts = self._counts.plus(base[seen:], max(0, self._num_prompt_tokens - seen))
        self._base, self._num_absorbed, self._last = base, len(base), base[-1] if base else -1


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of the longest common prefix.

    >>> common_prefix([1, 2, 3], [1, 2, 4, 5])
    2
    """
    if left == right[: len(left)]:  # the usual case of long lists, at the speed of C
        return len(left)
    shorter = min(len(left), len(right))
    return next((place for place in range(shorter) if left[place] != right[place]), shorter)
