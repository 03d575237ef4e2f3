"""What came before a node: `PathHistory`, a sequence plus the tokens of a path, and `TokenCounts` over it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

CountArray = NDArray[np.int32]


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


class TokenCounts:
    """How often each token occurs in one sequence, kept up to date as the sequence grows.

    A step costs the tokens it added, not the length of the history. The cache is only a cache: another list, a shorter
    one, or one that ends otherwise is counted afresh. Serves one sequence; not shared between threads.
    """

    def __init__(self, vocab_size: int, num_prompt_tokens: int) -> None:
        self._num_prompt_tokens = num_prompt_tokens
        self._total = np.zeros(vocab_size, dtype=np.int32)
        self._output = np.zeros(vocab_size, dtype=np.int32)
        self._base: Sequence[int] = ()
        self._num_absorbed = 0
        self._last = -1

    def at(self, history: Sequence[int]) -> tuple[CountArray, CountArray]:
        """(counts in prompt and output, counts in the output alone), each [V]; read-only for the caller."""
        base, tail = (history.base, history.tail) if isinstance(history, PathHistory) else (history, ())
        self._catch_up(base)
        if not tail:
            return self._total, self._output
        total, output = self._total.copy(), self._output.copy()
        np.add.at(total, list(tail), 1)
        np.add.at(output, list(tail[max(0, self._num_prompt_tokens - len(base)) :]), 1)
        return total, output

    def _catch_up(self, base: Sequence[int]) -> None:
        seen = self._num_absorbed
        if base is not self._base or len(base) < seen or (seen and base[seen - 1] != self._last):
            self._total[:] = self._output[:] = seen = 0
        if len(base) > seen:
            new = list(base[seen:])
            np.add.at(self._total, new, 1)
            np.add.at(self._output, new[max(0, self._num_prompt_tokens - seen) :], 1)
        self._base, self._num_absorbed, self._last = base, len(base), base[-1] if base else -1
