"""The file that `medusa config init` writes."""

from __future__ import annotations

import tomllib
from pathlib import Path

from medusakit.config import KEYS, Config, resolve, template


def test_template_has_every_key_and_its_lines_are_valid(tmp_path: Path) -> None:
    text = template()
    assert tomllib.loads(text) == {}
    lines = [line.removeprefix("# ") for line in text.splitlines() if " = " in line]
    assert [line.split(" = ")[0] for line in lines] == list(KEYS)
    file = tmp_path / "config.toml"
    file.write_text("\n".join(lines))
    assert resolve({}, env={}, file=file).config.max_tokens == Config().max_tokens
