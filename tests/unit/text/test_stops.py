from __future__ import annotations

import pytest

from medusakit.errors import UsageError
from medusakit.text.stops import StopMatcher


@pytest.mark.parametrize(
    ("stops", "text", "found"),
    [
        (["b"], "abc", (2, 1)),
        (["bc", "b"], "abc", (2, 1)),  # complete first
        (["bc", "abc"], "abc", (3, 3)),  # at one character the longest
        (["abab"], "abaabab", (7, 4)),  # a false start within a start
        (["aaab"], "aaaaab", (6, 4)),
        (["\n\n"], "a\nb\n\n", (5, 2)),
        (["x"], "abc", None),
        ([], "abc", None),
        (["é👍"], "aé👍", (3, 2)),
    ],
)
def test_found(stops: list[str], text: str, found: tuple[int, int] | None) -> None:
    assert StopMatcher(stops).feed(text) == found


def test_across_parts() -> None:
    matcher = StopMatcher(["STOP"])
    assert [matcher.feed(part) for part in ("xS", "T", "", "O")] == [None] * 4
    assert matcher.pending == 3
    assert matcher.feed("Py") == (1, 4)


def test_pending_is_the_longest_beginning() -> None:
    matcher = StopMatcher(["abcd", "cde"])
    matcher.feed("xabc")
    assert matcher.pending == 3
    matcher.feed("x")
    assert matcher.pending == 0


def test_an_empty_stop_is_refused() -> None:
    with pytest.raises(UsageError, match="empty"):
        StopMatcher(["a", ""])


def test_linear_in_the_text() -> None:
    """100,000 characters that all but match a stop of 2,000: quadratic matching would take 2e8 comparisons."""
    matcher = StopMatcher(["a" * 2000 + "b"])
    assert matcher.feed("a" * 100_000) is None
    assert matcher.feed("b") == (1, 2001)
