"""Settings: names, precedence, checks."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from medusakit.config import KEYS, Config, Origin, config_path, named_by_origin, resolve, stray_variables, template
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


def test_origin_names_the_place(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("top_p = 0.5\n")
    origins = resolve({"seed": "1"}, env={"MEDUSA_TOP_K": "3"}, file=file).origins
    assert origins["seed"].where == "--seed"
    assert origins["top_k"].where == "MEDUSA_TOP_K"
    assert origins["top_p"].where == str(file)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("temperature", "0.7", 0.7),
        ("temperature", "1", 1.0),
        ("max_tokens", "16", 16),
        ("stream", "off", False),
        ("stop", "END", ("END",)),
        ("weights", "int4", "int4"),
    ],
)
def test_text_becomes_a_value(name: str, text: str, value: object) -> None:
    assert getattr(resolve({name: text}, env={}).config, name) == value


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("temperature", "hot", "--temperature: 'hot' is not a number from 0 to 100"),
        ("top_p", "nan", "--top-p: nan is not a number from 0 to 1"),
        ("top_p", "1.5", "1.5"),
        ("max_tokens", "0", "a whole number from 1 up"),
        ("max_tokens", "2.5", "a whole number"),
        ("weights", "fp16", "one of auto, f32, int8, int4"),
        ("stream", "maybe", "true or false"),
    ],
)
def test_a_bad_value_names_place_value_and_expectation(name: str, text: str, part: str) -> None:
    with pytest.raises(ConfigError, match=".") as caught:
        resolve({name: text}, env={})
    assert part in caught.value.message


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


@pytest.mark.parametrize("content", [None, "= broken", b"\xff\xfe"])
def test_unreadable_file_is_named(tmp_path: Path, content: str | bytes | None) -> None:
    file = tmp_path / "config.toml"
    if content is not None:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ConfigError, match="config.toml"):
        resolve({}, env={}, file=file)


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


def test_template_has_every_key_and_its_lines_are_valid(tmp_path: Path) -> None:
    text = template()
    assert tomllib.loads(text) == {}
    lines = [line.removeprefix("# ") for line in text.splitlines() if " = " in line]
    assert [line.split(" = ")[0] for line in lines] == list(KEYS)
    file = tmp_path / "config.toml"
    file.write_text("\n".join(lines))
    assert resolve({}, env={}, file=file).config.max_tokens == Config().max_tokens


def test_every_key_has_help_and_a_default_in_range() -> None:
    for key in KEYS.values():
        assert key.setting.help
        if key.default is not None:
            key.check(key.default, key.name)
