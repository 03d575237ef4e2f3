"""Who waits: keys take turns, so that one tenant's many requests do not hold up another's one, and only so many may.

Neither of the two is thread-safe.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from medusakit.errors import QueueFullError

T = TypeVar("T")
FIRST_GUESS_S = 2.0  # how long a job takes, before one has ended
NEWEST = 0.1  # weight of the job that ended last in what is known of that


class FairQueue(Generic[T]):
    """First come, first served within a key; round robin over keys."""

    def __init__(self) -> None:
        self._by_key: OrderedDict[str, deque[T]] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(items) for items in self._by_key.values())

    def __iter__(self) -> Iterator[T]:
        """Key by key, in the order of their turns."""
        return (item for items in self._by_key.values() for item in items)

    def push(self, key: str, item: T) -> None:
        self._by_key.setdefault(key, deque()).append(item)

    def pop(self) -> T:
        """The next item; its key goes to the end of the line. Raises IndexError when nothing waits."""
        if not self._by_key:
            raise IndexError("nothing waits")
        key, items = next(iter(self._by_key.items()))
        item = items.popleft()
        if items:
            self._by_key.move_to_end(key)
        else:
            del self._by_key[key]
        return item

    def take(self, wanted: Callable[[T], bool]) -> list[T]:
        """Remove and return what is wanted."""
        taken = [item for item in self if wanted(item)]
        if taken:
            for key, items in list(self._by_key.items()):
                left = deque(item for item in items if not any(item is one for one in taken))
                if left:
                    self._by_key[key] = left
                else:
                    del self._by_key[key]
        return taken


class Room:
    """Counts the open jobs: at most `rows` that decode and `queue` that wait."""

    def __init__(self, rows: int, queue: int) -> None:
        self._rows, self._queue = rows, queue
        self._job_s = FIRST_GUESS_S
        self.num_open = 0

    @property
    def capacity(self) -> int:
        return self._rows + self._queue

    def take(self) -> None:
        """One more. Raises QueueFullError, which says when there may be room again."""
        if self.num_open >= self.capacity:
            seconds = max(1.0, self._job_s * (1 + self.num_open - self._rows) / self._rows)
            raise QueueFullError(
                f"{self.num_open} requests are open, as many as may be ({self._rows} decode, {self._queue} wait)",
                retry_after_s=seconds,
                hint=f"again in {seconds:.0f} s",
            )
        self.num_open += 1

    def leave(self, seconds: float | None) -> None:
        """One less. seconds: how long it had a row; None: it never had one."""
        self.num_open -= 1
        if seconds is not None:
            self._job_s += NEWEST * (seconds - self._job_s)
