"""Precedence of the sources, and what each refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from medusakit.config import Config, config_path, resolve, stray_variables
from medusakit.errors import ConfigError


def test_defaults_are_the_dataclass_defaults() -> None:
    resolved = resolve({}, env={})
    assert resolved.config == Config()
    assert {origin.source for origin in resolved.origins.values()} == {"default"}


def test_each_layer_wins_over_the_next(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("budget = 8\n")
    env = {"MEDUSA_BUDGET": "9"}
    layers = [
        ({"budget": "10"}, env, file, "flag", 10),
        ({}, env, file, "env", 9),
        ({}, {}, file, "file", 8),
        ({}, {}, None, "artifact", 7),
    ]
    for flags, variables, path, source, value in layers:
        resolved = resolve(flags, env=variables, file=path, artifact={"budget": 7}, artifact_path="heads/medusa.json")
        assert (resolved.config.budget, resolved.origins["budget"].source) == (value, source)


def test_the_hint_is_in_the_form_of_the_place(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('weights = "fp16"\n')
    heads = {"artifact": {"budget": 0}, "artifact_path": "heads/medusa.json"}
    for hint, flags, env, path, more in (
        ("--top-k 0", {"top_k": "x"}, {}, None, {}),
        ("MEDUSA_TOP_K=0", {}, {"MEDUSA_TOP_K": "x"}, None, {}),
        ("MEDUSA_STREAM=true", {}, {"MEDUSA_STREAM": "maybe"}, None, {}),
        ('weights = "auto"', {}, {}, file, {}),
        ("budget = 1", {}, {}, None, heads),
    ):
        with pytest.raises(ConfigError) as caught:
            resolve(flags, env=env, file=path, **more)  # type: ignore[arg-type]
        assert caught.value.hint == hint


def test_file_values_keep_their_types(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('temperature = 1\nstop = ["a", "b"]\nspeculation = false\n')
    config = resolve({}, env={}, file=file).config
    assert (config.temperature, config.stop, config.speculation) == (1.0, ("a", "b"), False)
    file.write_text("max_tokens = true\n")
    with pytest.raises(ConfigError, match="max_tokens: True is not a whole number"):
        resolve({}, env={}, file=file)


def test_unknown_file_key_names_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("temprature = 1.0\n")
    with pytest.raises(ConfigError) as caught:
        resolve({}, env={}, file=file)
    assert "temprature" in caught.value.message
    assert caught.value.hint == "temperature"


@pytest.mark.parametrize(
    ("content", "message", "hint"),
    [
        (None, "there is no configuration file {file}", "medusa config init --config {file}"),
        (b"= broken", "the configuration file {file} is not TOML: Invalid", "lines such as: model ="),
        (b"\xff\xfe", "the configuration file {file} is not UTF-8 text", "lines such as: model ="),
    ],
)
def test_unreadable_file_is_named(tmp_path: Path, content: bytes | None, message: str, hint: str) -> None:
    file = tmp_path / "config.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        resolve({}, env={}, file=file)
    assert caught.value.message.startswith(message.format(file=file)) and "Errno" not in caught.value.message
    assert str(caught.value.hint).startswith(hint.format(file=file))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the configuration file .*: Is a directory"):
        resolve({}, env={}, file=tmp_path)


def test_an_empty_text_in_a_list_is_refused_in_the_form_of_its_place(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('stop = ["END", ""]\n')
    for flags, path, hint in (({"stop": [""]}, None, "--stop TEXT"), ({}, file, 'stop = ["TEXT"]')):
        with pytest.raises(ConfigError, match="a text is empty; expected one character or more") as caught:
            resolve(flags, env={}, file=path)
        assert caught.value.hint == hint


def test_misspelt_variable_is_an_error_and_a_platform_variable_is_not() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve({}, env={"MEDUSA_TEMPERTURE": "1"})
    assert caught.value.hint == "MEDUSA_TEMPERATURE"
    env = {"MEDUSA_SERVICE_HOST": "10.0.0.1", "MEDUSA_HOME": "/x", "PATH": "/bin"}
    assert resolve({}, env=env).config == Config()
    assert stray_variables(env) == ["MEDUSA_SERVICE_HOST"]


def test_empty_variable_counts_as_unset() -> None:
    assert resolve({}, env={"MEDUSA_SEED": ""}).config.seed is None


def test_artifact_may_not_set_everything() -> None:
    with pytest.raises(ConfigError, match="cannot set `model`"):
        resolve({}, env={}, artifact={"model": "other"}, artifact_path="heads/medusa.json")


def test_config_path_order() -> None:
    assert config_path({"MEDUSA_CONFIG": "/a.toml", "XDG_CONFIG_HOME": "/x"}) == Path("/a.toml")
    assert config_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/medusakit/config.toml")
