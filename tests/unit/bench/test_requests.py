"""Logs of requests, in every form that is read, and what is said of a broken line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from medusakit.bench.requests import Request, read_requests
from medusakit.errors import UsageError


def log(folder: Path, *lines: str) -> Path:
    file = folder / "requests.jsonl"
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"prompt_tokens": 12, "output_tokens": 3, "model": "x"}', Request(12, 3)),
        ('{"input_tokens": 12, "completion_tokens": 3}', Request(12, 3)),
        ('{"prompt_tokens": 1, "output_tokens": 2, "timestamp": 5, "duration_s": 0.5}', Request(1, 2, 5.0, 0.5)),
        ('{"prompt_tokens": 1, "output_tokens": 2, "timestamp": "1970-01-01T00:01:00Z"}', Request(1, 2, 60.0)),
        (
            '{"id": "x", "created": 9, "usage": {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}}',
            Request(4, 2, 9.0),
        ),
        (
            '{"text": "a", "stats": {"num_prompt_tokens": 7, "num_tokens": 5, "prefill_s": 0.5, "decode_s": 1.5}}',
            Request(7, 5, None, 2.0),
        ),
    ],
)
def test_forms_of_a_line(tmp_path: Path, line: str, expected: Request) -> None:
    other = '{"prompt_tokens": 0, "output_tokens": 0}'
    assert read_requests(log(tmp_path, line, "", other)) == [expected, Request(0, 0)]


def test_a_file_of_one_value_over_several_lines(tmp_path: Path) -> None:
    entry = {"prompt_tokens": 12, "output_tokens": 3}
    assert read_requests(log(tmp_path, json.dumps(entry, indent=2))) == [Request(12, 3)]
    assert read_requests(log(tmp_path, json.dumps([entry, entry], indent=2))) == 2 * [Request(12, 3)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"prompt_tokens": 12, "output_tok', "line 2 is not JSON"),
        ("[1, 2]", "line 2 holds a list"),
        ('{"prompt_tokens": 12}', "line 2 has no output_tokens"),
        ('{"usage": {"prompt_tokens": 1}}', "line 2 has no output_tokens"),
        ('{"prompt_tokens": -1, "output_tokens": 1}', "line 2: prompt_tokens is -1"),
        ('{"prompt_tokens": true, "output_tokens": 1}', "line 2: prompt_tokens is True"),
        ('{"prompt_tokens": 1, "output_tokens": 1, "timestamp": "noon"}', "line 2: timestamp is 'noon'"),
        ('{"prompt_tokens": 1, "output_tokens": 1, "duration_s": -2}', "line 2: duration_s is -2"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    file = log(tmp_path, '{"prompt_tokens": 1, "output_tokens": 1}', line)
    with pytest.raises(UsageError) as caught:
        read_requests(file)
    assert f"{file}, {said}" in caught.value.message
    assert "prompt_tokens" in str(caught.value.hint)


def test_files_without_requests(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no requests"):
        read_requests(log(tmp_path, ""))
    with pytest.raises(UsageError, match="cannot be read"):
        read_requests(tmp_path / "nowhere.jsonl")
