"""What `medusa serve` makes of its settings and of the environment."""

import sys
from types import SimpleNamespace

import pytest

from medusakit.cli import serve
from medusakit.cli.app import App
from medusakit.config import KEYS, Config
from medusakit.errors import ConfigError, UsageError
from medusakit.llm import LLM
from medusakit.server.service import Card
from medusakit.server.tracing import ENDPOINTS
from medusakit.text.call_formats import BY_NAME


def scheduling(**settings):
    return serve._scheduling(SimpleNamespace(config=Config(**settings)))


def test_blocks_of_the_cache_are_what_the_options_say():
    default = scheduling()
    assert (default.cache_block_tokens, default.cache_blocks) == (1, None)
    found = scheduling(kv_cache_sharding="64", shard_count=10)
    assert (found.cache_block_tokens, found.cache_blocks) == (64, 10)


@pytest.mark.parametrize(("name", "value"), [("kv_cache_sharding", "7"), ("shard_count", "0"), ("shard_count", "x")])
def test_blocks_that_cannot_be_are_refused(name, value):
    with pytest.raises(ConfigError, match=KEYS[name].flag):
        KEYS[name].parse(value, KEYS[name].flag)


def test_a_collector_without_packages_is_one_warning_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    told = []
    app = SimpleNamespace(env={ENDPOINTS[1]: "http://localhost:4318"}, ui=SimpleNamespace(warn=told.append))
    assert serve._tracing(app) is None
    (line,) = told
    assert "pip install 'medusakit[otel]'" in line and "\n" not in line


def test_without_a_collector_nothing_of_opentelemetry_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    assert serve._tracing(SimpleNamespace(env={}, ui=None)) is None


def test_formats_of_calls_are_those_that_are_known():
    assert KEYS["tool_format"].setting.choices == tuple(BY_NAME)


def test_a_chat_template_of_ones_own(monkeypatch, tmp_path):
    file = tmp_path / "own.jinja"
    file.write_text("{{ messages }}")
    used = []
    capabilities = SimpleNamespace(limit="", eager="", requantised=0)
    loaded = SimpleNamespace(use_chat_template=used.append, runtime=SimpleNamespace(capabilities=capabilities))
    loaded.parts = SimpleNamespace(runtime=loaded.runtime)
    monkeypatch.setattr(LLM, "load", lambda *names, **options: loaded)
    flags = {"chat_template": str(file), "speculation": False}
    App(flags, quiet=True, config_file=None, env={}).load()
    assert used == ["{{ messages }}"]
    file.unlink()
    with pytest.raises(UsageError, match="chat template .* cannot be read"):
        App(flags, quiet=True, config_file=None, env={}).load()


@pytest.mark.parametrize(
    ("speculation", "said"),
    [(True, "drafts  hybrid, heads 0123456789"), (False, "drafts  off; /admin/speculation switches on hybrid, heads")],
)
def test_the_introduction_says_whether_it_drafts(speculation, said):
    told = []
    app = SimpleNamespace(config=Config(speculation=speculation), ui=SimpleNamespace(note=told.append))
    card = Card("toy", 64, 9, "f", "f32", "hybrid", "0123456789abcdef", "onnx", "cpu")
    address = SimpleNamespace(getsockname=lambda: ("127.0.0.1", 8642))
    serve._introduce(app, SimpleNamespace(card=card), address, keys=False)
    assert any(said in line for line in told)
