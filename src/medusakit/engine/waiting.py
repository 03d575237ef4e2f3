"""Who is next: waiting keys take turns, so that one tenant's many requests do not hold up another's one."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """First come, first served within a key; round robin over keys. Not thread-safe."""

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
