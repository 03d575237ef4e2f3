"""Waiting keys take turns."""

import pytest

from medusakit.engine.waiting import FairQueue


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
