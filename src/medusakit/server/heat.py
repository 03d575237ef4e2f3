"""Where in the trees the drafts come true: for every place, how often it was offered and how often accepted."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from medusakit.tree.topology import RankPath, Topology

MAX_DEPTH = 8
MAX_PLACES = 512
TOLD = 64


class Heat:
    """A place is a path of ranks: (0, 1) is the second guess under the first. Told on one thread, read on others.

    Deeper places than MAX_DEPTH are left out, and new ones once MAX_PLACES are known.
    """

    def __init__(self) -> None:
        self._counts: dict[RankPath, list[int]] = {}
        self._lock = threading.Lock()

    def add(self, topology: Topology, kept: Sequence[int]) -> None:
        """A tree was verified; kept: its accepted nodes, root included."""
        accepted = frozenset(kept)
        with self._lock:
            for node, path in enumerate(topology.rank_paths[1:], 1):
                if len(path) <= MAX_DEPTH and (path in self._counts or len(self._counts) < MAX_PLACES):
                    counts = self._counts.setdefault(path, [0, 0])
                    counts[0] += 1
                    counts[1] += node in accepted

    def told(self) -> list[dict[str, Any]]:
        """The places offered most often, parents before their children."""
        with self._lock:
            found = sorted(self._counts.items(), key=lambda item: (-item[1][0], len(item[0]), item[0]))
            told = [{"path": list(path), "offered": one[0], "accepted": one[1]} for path, one in found[:TOLD]]
        return told

    def clear(self) -> None:
        """Other heads draft from now on."""
        with self._lock:
            self._counts.clear()
