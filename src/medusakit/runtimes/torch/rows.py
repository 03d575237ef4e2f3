"""What the torch runtimes share: which rows are active, and the checks of what is asked of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from medusakit.errors import ContextLengthError, RuntimeFailure
from medusakit.models.spec import ModelSpec
from medusakit.runtimes.base import Capabilities
from medusakit.tree.topology import IntArray


class RowTable:
    """Row handles and their slots: 0 .. max_rows - 1, the lowest free one first."""

    def __init__(self, spec: ModelSpec, capabilities: Capabilities) -> None:
        self._spec, self._capabilities = spec, capabilities
        self._slots: dict[int, int] = {}
        self._next_handle = 0

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def rows(self) -> tuple[int, ...]:
        return tuple(self._slots)

    def _take_slot(self) -> int:
        """A new handle. Raises RuntimeFailure where all rows are in use."""
        free = set(range(self._capabilities.max_rows)) - set(self._slots.values())
        if not free:
            raise RuntimeFailure(
                f"all {self._capabilities.max_rows} rows are in use", hint="load with a larger max_rows"
            )
        row, self._next_handle = self._next_handle, self._next_handle + 1
        self._slots[row] = min(free)
        return row

    def _slot(self, row: int) -> int:
        if row not in self._slots:
            raise RuntimeFailure(f"row {row} is not active; active rows: {sorted(self._slots)}")
        return self._slots[row]

    def _checked(self, ids: Sequence[int] | IntArray) -> IntArray:
        tokens = np.asarray(ids, np.int64)
        if not len(tokens):
            raise RuntimeFailure("nothing to run: the prompt has no tokens", hint="a prompt of at least one token")
        if tokens.min() < 0 or tokens.max() >= self._spec.vocab_size:
            raise RuntimeFailure(
                f"token ids run from 0 to {self._spec.vocab_size - 1}; got {tokens.min()} to {tokens.max()}",
                hint="the ids that llm.encode(text) gives",
            )
        return tokens

    def _check_context(self, positions: int) -> None:
        limit = self._capabilities.max_context
        if positions > limit:
            raise ContextLengthError(
                f"{positions} positions are needed, but the context holds {limit}",
                hint=f"a prompt and answer of at most {limit} tokens together",
            )
