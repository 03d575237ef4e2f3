"""Ctrl-C while modules are loaded: held back where it would be garbled, never lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from medusakit.cli.interrupt import interrupt_between_loads

GARBLED = """
import _imp, signal, sys, time
import click
from medusakit.cli.group import Command
from medusakit.cli.main import main
real, pressed = _imp.create_dynamic, []
def create(spec, *rest):  # as C extensions do it
    try:
        if not pressed:
            pressed.append(True)
            signal.raise_signal(signal.SIGINT)
        return real(spec, *rest)
    except KeyboardInterrupt:
        raise ImportError("initialization failed") from None
@click.command(cls=Command)
def load():
    _imp.create_dynamic = create
    import numpy
    time.sleep(30)
sys.exit(main(sys.argv[1:], load))
"""


@pytest.mark.parametrize("words", [[], ["--debug"]])
def test_ctrl_c_while_a_c_extension_initialises_ends_quietly(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", GARBLED, *words], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")


def test_ctrl_c_elsewhere_is_raised_at_once() -> None:
    with interrupt_between_loads(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    """As in a background job."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupt_between_loads():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_may_call_commands() -> None:
    entered: list[bool] = []

    def call() -> None:
        with interrupt_between_loads():
            entered.append(True)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert entered == [True]
