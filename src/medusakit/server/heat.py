"""Where in the trees the drafts come true: for every place, how often it was offered and how often accepted."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from medusakit.tree.topology import RankPath, Topology

MAX_DEPTH = 8
MAX_PLACES = 512
MAX_PENDING = 1024  # steps of rows that nobody has looked at yet
TOLD = 64


class Heat:
    """A place is a path of ranks: (0, 1) is the second guess under the first. Told on one thread, read on others.

    A step only notes its tree, for the inference thread waits for it; whoever looks counts what was noted. Where nobody
    looks, the last MAX_PENDING trees are kept. Deeper places than MAX_DEPTH are left out, and new ones once MAX_PLACES
    are known.
    """

    def __init__(self) -> None:
        self._counts: dict[RankPath, list[int]] = {}
        self._pending: deque[tuple[Topology, Sequence[int]]] = deque(maxlen=MAX_PENDING)
        self._lock = threading.Lock()

    def add(self, topology: Topology, kept: Sequence[int]) -> None:
        """A tree was verified; kept: its accepted nodes, root included. Neither may change afterwards."""
        self._pending.append((topology, kept))

    def told(self) -> list[dict[str, Any]]:
        """The places offered most often, parents before their children."""
        with self._lock:
            while self._pending:  # the one reader that holds the lock takes away; `add` only appends
                self._count(*self._pending.popleft())
            found = sorted(self._counts.items(), key=lambda item: (-item[1][0], len(item[0]), item[0]))
            return [{"path": list(path), "offered": one[0], "accepted": one[1]} for path, one in found[:TOLD]]

    def clear(self) -> None:
        """Other heads draft from now on."""
        with self._lock:
            self._pending.clear()
            self._counts.clear()

    def _count(self, topology: Topology, kept: Sequence[int]) -> None:
        accepted = frozenset(kept)
        for node, path in enumerate(topology.rank_paths[1:], 1):
            if len(path) <= MAX_DEPTH and (path in self._counts or len(self._counts) < MAX_PLACES):
                counts = self._counts.setdefault(path, [0, 0])
                counts[0] += 1
                counts[1] += node in accepted
