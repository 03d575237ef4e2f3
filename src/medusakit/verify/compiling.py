"""A form of answers as a grammar: how it is compiled, and a trial beforehand in a process that can be ended.

llguidance counts most of its work and stops where it is told to, but not all: whether several patterns have a text in
common takes a time that doubles with each of them, and native code cannot be interrupted in a thread. So a form is
compiled once where processor time and memory are limited by the system, over a vocabulary of bytes, and only then here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from typing import Any

from medusakit.errors import RuntimeFailure

# One way to write a document, as models mostly do: free whitespace would let an answer never end.
LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
# Work that llguidance counts. Its own limits for lexers, a fifth of its own for productions.
LIMITS = {"initial_lexer_fuel": 1_000_000, "max_lexer_states": 250_000, "max_grammar_size": 100_000}
# Of a trial: seconds of a processor, which are what counts, and by the clock, for a machine with much else to do.
CPU_S = 2
WALL_S = 30.0
MEMORY_BYTES = 2 << 30
_STARTS = 3  # masks looked at: at the start, and after what is forced from there,
_FORCED = 64  # so many bytes of it
_NO_DOCUMENT = "NoExtension"  # why a matcher stops at its start: the schema contains itself


def compiled(llguidance: Any, vocabulary: Any, form: str) -> tuple[str, Any]:
    """The grammar as llguidance writes it, and a matcher at its start, whose first mask is known.

    form  a JSON schema, or llguidance's Lark, which begins with `start:`
    Raises ValueError: the form is none, asks for what is not known, or is more work than `LIMITS` has.
    """
    is_lark = form.startswith("start:")
    text = form if is_lark else llguidance.LLMatcher.grammar_from_json_schema(form, LAYOUT)
    limits = llguidance.LLParserLimits(**LIMITS)
    matcher = llguidance.LLMatcher(vocabulary, text, log_level=0, limits=limits)
    start = matcher.deep_copy()  # copies share what has been worked out
    start.compute_bitmask()
    if start.is_error():
        reason = start.get_error()
        raise ValueError("there is no document of it" if reason.startswith(_NO_DOCUMENT) else reason)
    return text, matcher


def objection(form: str) -> str:
    """What is against a form, tried in a process of its own; empty if nothing. Takes a twentieth of a second or more.

    Raises RuntimeFailure where there can be no such process.
    """
    command = [sys.executable, "-P", "-m", __name__]
    places = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            command, input=form.encode(), capture_output=True, env=places, timeout=WALL_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it is too much work: not done within {WALL_S:g} s"
    except OSError as error:
        message = f"there is no process to try the schema in: {error}"
        raise RuntimeFailure(message, hint="fewer processes, or more memory") from None
    if done.returncode > 0:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise RuntimeFailure(f"the schema could not be tried: {last[:300]}", hint="pip install 'medusakit[grammar]'")
    if done.returncode < 0:
        return f"it is too much work: more than {CPU_S} s of a processor, or {MEMORY_BYTES >> 30} GiB"
    return done.stdout.decode()


def _tried(form: str) -> str:
    """In the process of the trial."""
    import llguidance

    try:
        _, matcher = compiled(llguidance, llguidance.LLTokenizer("byte"), form)
    except ValueError as error:
        return str(error) or "llguidance refuses it"
    for _ in range(_STARTS):
        matcher.compute_bitmask()
        if matcher.is_error():
            return str(matcher.get_error())
        matcher.consume_tokens(matcher.compute_ff_tokens()[:_FORCED])
    return ""


def _limit() -> None:
    """Where the system knows such limits; the wall time holds everywhere."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 1))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


if __name__ == "__main__":
    _limit()
    sys.stdout.write(_tried(sys.stdin.read()))
