"""Ctrl-C is put off for one step at most, never lost, and the second one does not wait."""

from __future__ import annotations

import signal
import threading

import pytest

from medusakit.train.interrupt import deferred_interrupt


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_the_first_lets_the_step_end_and_the_second_does_not() -> None:
    before, steps = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt), deferred_interrupt() as pressed:
        assert not pressed()
        press()
        assert pressed()
        steps.append("ended")
        press()
        steps.append("not reached")
    assert steps == ["ended"]
    assert signal.getsignal(signal.SIGINT) is before


def test_one_that_nobody_asked_about_is_raised_at_the_end() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), deferred_interrupt():
        press()
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_of_the_block_is_not_replaced() -> None:
    with pytest.raises(ZeroDivisionError), deferred_interrupt():
        press()
        raise ZeroDivisionError


def test_other_threads_leave_signals_alone() -> None:
    answers = []

    def work() -> None:
        with deferred_interrupt() as pressed:
            answers.append(pressed())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert answers == [False]
