"""What `medusa serve` makes of its settings and of the environment."""

import sys
from types import SimpleNamespace

import pytest

from medusakit.cli import serve
from medusakit.config import KEYS, Config
from medusakit.errors import ConfigError
from medusakit.server.tracing import ENDPOINTS


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
