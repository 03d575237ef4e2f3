"""Waiting keys take turns."""

import pytest

from medusakit.engine.waiting import FairQueue, Room
from medusakit.errors import QueueFullError


def filled(*items: str) -> FairQueue[str]:
    """Items are written key + number."""
    queue = FairQueue[str]()
    for item in items:
        queue.push(item[0], item)
    return queue


def test_keys_take_turns_and_each_is_first_come_first_served() -> None:
    queue = filled("a1", "a2", "a3", "b1", "c1", "b2")
    assert len(queue) == 6
    assert [queue.pop() for _ in range(6)] == ["a1", "b1", "c1", "a2", "b2", "a3"]
    with pytest.raises(IndexError):
        queue.pop()


def test_a_key_that_comes_late_waits_one_turn_at_most() -> None:
    queue = filled("a1", "a2", "a3")
    assert queue.pop() == "a1"
    queue.push("b", "b1")
    assert [queue.pop(), queue.pop(), queue.pop()] == ["a2", "b1", "a3"]


def test_take_removes_what_is_wanted_and_nothing_else() -> None:
    queue = filled("a1", "b1", "a2", "c1")
    assert queue.take(lambda item: item in ("a1", "c1")) == ["a1", "c1"]
    assert queue.take(lambda _: False) == []
    assert list(queue) == ["a2", "b1"] and len(queue) == 2


def test_room_says_when_to_come_again() -> None:
    """By how long jobs took of late: two decode, so three that are open leave a row free after half a job's time."""
    room = Room(rows=2, queue=1)
    for _ in range(3):
        room.take()
    with pytest.raises(QueueFullError, match="3 requests are open, as many as may be") as full:
        room.take()
    assert (room.num_open, full.value.retry_after_s) == (3, 2.0)
    for seconds in (None, 22.0):
        room.leave(seconds)
    assert room.num_open == 1
    for _ in range(2):
        room.take()
    with pytest.raises(QueueFullError) as later:
        room.take()
    assert later.value.retry_after_s == pytest.approx(4.0)
