"""The two other names of commands."""

from __future__ import annotations

import pytest

from cli_fakes import Invoke
from medusakit.cli import named


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ["hardware"]),
        (["--mode=hardware"], ["hardware"]),
        (["--mode", "offline", "--limit", "2"], ["offline", "--limit", "2"]),
        (["--json", "-", "--mode=hardware"], ["hardware", "--json", "-"]),
    ],
)
def test_the_mode_comes_first(words: list[str], expected: list[str]) -> None:
    assert named.benchmark_arguments(words) == expected


def test_env_checker_is_doctor(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["medusa-env-checker", "--help"])
    assert named.env_checker() == 0
    assert capsys.readouterr().out.startswith("Usage: medusa doctor")
