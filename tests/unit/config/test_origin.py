"""Where a value came from is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from medusakit.config import KEYS, Origin, named_by_origin, resolve


def test_origin_names_the_place(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("top_p = 0.5\n")
    origins = resolve({"seed": "1"}, env={"MEDUSA_TOP_K": "3"}, file=file).origins
    assert origins["seed"].where == "--seed"
    assert origins["top_k"].where == "MEDUSA_TOP_K"
    assert origins["top_p"].where == str(file)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("--tree 9x9 is 9 deep", "MEDUSA_TREE=9x9 is 9 deep"),
        ("leave out --system, or write it", "leave out system in c.toml, or write it"),
        ("--heads none", 'heads = "none" in c.toml'),
        ("--max-tokens 5", "max_tokens = 5 in c.toml"),
        ("--budget 4", "--budget 4"),
        ("--heads-up", "--heads-up"),
        ("--heads none, or: medusa run --heads x", 'heads = "none" in c.toml, or: medusa run --heads x'),
    ],
)
def test_a_flag_in_a_message_is_named_by_where_its_value_is(text: str, named: str) -> None:
    origins = dict.fromkeys(KEYS, Origin("default")) | {
        "tree": Origin("env", "MEDUSA_TREE"),
        "budget": Origin("flag", "--budget"),
        **dict.fromkeys(("system", "heads", "max_tokens"), Origin("file", "c.toml")),
    }
    assert named_by_origin(text, origins) == named
