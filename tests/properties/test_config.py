"""Whatever is typed, a setting ends up in its range or is refused with a message that names the place."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from medusakit.config import KEYS, resolve
from medusakit.errors import ConfigError

NUMBERS = st.one_of(st.integers(), st.floats()).map(str)
TEXTS = st.one_of(st.text(), NUMBERS, st.sampled_from(["true", "off", "auto", "int8", "1e400", "nan", "-0", "1_000"]))


@given(name=st.sampled_from(sorted(KEYS)), text=TEXTS)
@example(name="top_p", text="nan")
@example(name="seed", text="-1")
def test_a_value_is_in_range_or_refused(name: str, text: str) -> None:
    key = KEYS[name]
    try:
        value = getattr(resolve({name: text}, env={}).config, name)
    except ConfigError as error:
        assert key.flag in error.message
        assert error.exit_code == 2
        return
    setting = key.setting
    if key.kind in ("int", "float"):
        assert setting.low is None or value >= setting.low
        assert setting.high is None or value <= setting.high
    if setting.choices:
        assert value in setting.choices
    assert (value == (text,)) if key.kind == "list" else (type(value).__name__ == key.kind)


@given(name=st.sampled_from(sorted(KEYS)), text=TEXTS.filter(bool))
def test_a_variable_is_read_like_a_flag(name: str, text: str) -> None:
    def outcome(flags: dict[str, str], env: dict[str, str]) -> object:
        try:
            return repr(getattr(resolve(flags, env=env).config, name))
        except ConfigError as error:
            return error.code

    assert outcome({name: text}, {}) == outcome({}, {KEYS[name].env: text})
