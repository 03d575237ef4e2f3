"""However a text is cut into tokens, the stream gives the same characters and stops at the same place."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from medusakit.text.stops import StopMatcher
from medusakit.text.stream import TextStream
from medusakit.text.tokenizer import Tokenizer
from vocabularies import byte_tokenizer, spm_tokenizer

BYTE_LEVEL, SPM = byte_tokenizer(), spm_tokenizer()
text_of_few = st.text(alphabet="ab<é👍\n ", max_size=40)
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
relaxed = settings(deadline=None)  # the machine may be busy
stop_lists = st.lists(st.text(alphabet="ab<é👍\n ", min_size=1, max_size=5), max_size=3)


class Chunks:
    """A tokenizer whose token i is chunk i of the data: any cut whatever, within characters too."""

    special_ids: frozenset[int] = frozenset()
    space_prefix = False

    def __init__(self, data: bytes, cuts: list[int]) -> None:
        edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
        self.vocab_size = len(edges)
        self.chunks = [data[start:end] for start, end in zip(edges, edges[1:], strict=False)]

    def token_bytes(self, token_id: int) -> bytes:
        return self.chunks[token_id]


def run(tokenizer: Any, ids: list[int], stops: list[str]) -> tuple[str, bool]:
    """(text, stopped); checks on the way that nothing is held back without need."""
    stream = TextStream(tokenizer, stops)
    out, data = "", b""
    for token_id in ids:
        piece = stream.push(token_id)
        out += piece.text
        data += tokenizer.token_bytes(token_id)
        if piece.stopped:
            return out, True
        certain = data.decode("utf-8", "ignore")
        held = certain[len(out) :]
        assert certain.startswith(out)
        assert held == "" or any(stop.startswith(held) for stop in stops)
    return out + stream.flush(), False


cut_lists = st.lists(st.integers(0, 200), max_size=12)


@relaxed
@given(any_text, cut_lists)
def test_any_cut_gives_the_text(text: str, cuts: list[int]) -> None:
    tokenizer = Chunks(text.encode(), cuts)
    assert run(tokenizer, list(range(len(tokenizer.chunks))), []) == (text, False)


@relaxed
@given(text_of_few, cut_lists, st.text(alphabet="ab<é👍\n ", min_size=1, max_size=4))
def test_one_stop_is_str_find(text: str, cuts: list[int], stop: str) -> None:
    tokenizer = Chunks(text.encode(), cuts)
    out, stopped = run(tokenizer, list(range(len(tokenizer.chunks))), [stop])
    at = text.find(stop)
    assert (out, stopped) == ((text, False) if at < 0 else (text[:at], True))


@relaxed
@given(text_of_few, cut_lists, stop_lists)
def test_several_stops(text: str, cuts: list[int], stops: list[str]) -> None:
    """The one that is complete first, the longest of those."""
    tokenizer = Chunks(text.encode(), cuts)
    out, stopped = run(tokenizer, list(range(len(tokenizer.chunks))), stops)
    ends = [(text.find(stop) + len(stop), -len(stop)) for stop in stops if stop in text]
    expected = text[: sum(min(ends))] if ends else text
    assert (out, stopped) == (expected, bool(ends))


@relaxed
@given(any_text, stop_lists)
def test_real_vocabularies_agree_with_decode(text: str, stops: list[str]) -> None:
    for tokenizer in (BYTE_LEVEL, SPM):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        out, stopped = run_plain(tokenizer, ids, stops)
        found = StopMatcher(stops).feed(text)
        assert (out, stopped) == ((text[: found[0] - found[1]], True) if found else (text, False))


def run_plain(tokenizer: Tokenizer, ids: list[int], stops: list[str]) -> tuple[str, bool]:
    stream = TextStream(tokenizer, stops)
    out = ""
    for token_id in ids:
        piece = stream.push(token_id)
        out += piece.text
        if piece.stopped:
            return out, True
    return out + stream.flush(), False


@relaxed
@given(st.lists(st.integers(0, 260), max_size=30))
def test_any_ids_stream_as_they_decode(ids: list[int]) -> None:
    """Invalid UTF-8 too; only a character left incomplete at the end is dropped rather than replaced."""
    out, _ = run_plain(BYTE_LEVEL, ids, [])
    decoded = BYTE_LEVEL.decode(ids)
    assert out in (decoded, decoded.removesuffix("\ufffd"))
