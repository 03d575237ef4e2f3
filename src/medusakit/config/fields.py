"""Every setting with its default and what it says about itself. The one place where settings are listed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """What a field says about itself. low, high: inclusive bounds. artifact: a heads folder may recommend a value.
    flags: further names on the command line (of a bool: further names for off)."""

    help: str
    section: str
    flags: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    artifact: bool = False


def _setting(default: Any, section: str, help: str, *flags: str, **bounds: Any) -> Any:
    """A dataclass field that carries its `Setting`."""
    return field(default=default, metadata={"setting": Setting(help, section, flags, **bounds)})


@dataclass(frozen=True, slots=True)
class Config:
    """Every setting with its default. See `KEYS` for the names derived from them."""

    model: str = _setting("smollm2", "model", "alias, file, folder or hub id of the model", "-m")
    heads: str = _setting("auto", "model", "folder of heads, `auto` (find some that fit) or `none`")
    drafter: str | None = _setting(
        None,
        "model",
        "`hybrid` (several sources, the default), a family of heads, `suffix`, `recycling` or `draft_model`",
    )
    draft_model: str | None = _setting(None, "model", "second, smaller model of the same vocabulary, for draft_model")
    runtime: str = _setting(
        "onnx", "model", "`onnx`, or `torch`: any causal model of transformers", choices=("onnx", "torch")
    )
    device_map: str | None = _setting(None, "model", "devices of the torch runtime, as transformers takes it: auto")
    weights: str = _setting(
        "auto",
        "model",
        "format the weights run in; auto follows the file; bf16 and f16 are the torch runtime's",
        choices=("auto", "f32", "int8", "int4", "bf16", "f16"),
    )
    threads: int | None = _setting(None, "model", "threads of the runtime; all cores if unset", low=1, high=1024)
    max_context: int | None = _setting(
        None, "model", "tokens of prompt and answer together; the model's limit if unset", low=8
    )
    align_position_embed: bool = _setting(
        False, "model", "run the model with the positions (rope) that its heads were trained with"
    )
    chat_template: str | None = _setting(None, "model", "file of a chat template (jinja) instead of the model's own")
    offline: bool = _setting(False, "model", "never ask the network")

    system: str | None = _setting(None, "answer", "system message", "-s")
    max_tokens: int = _setting(512, "answer", "most tokens of an answer", "-n", low=1)
    stop: tuple[str, ...] = _setting((), "answer", "end before this text; may be given several times")
    seed: int | None = _setting(None, "answer", "seed of sampling; a fresh one if unset", low=0)
    temperature: float = _setting(0.0, "answer", "0 is greedy", "--temp", low=0.0, high=100.0)
    top_p: float = _setting(1.0, "answer", "keep the smallest set of tokens with this probability", low=0.0, high=1.0)
    top_k: int = _setting(0, "answer", "keep this many tokens; 0 keeps all", low=0)
    min_p: float = _setting(0.0, "answer", "drop tokens under this share of the best one's", low=0.0, high=1.0)
    repetition_penalty: float = _setting(1.0, "answer", "divide the scores of tokens seen before", low=0.01, high=100.0)
    presence_penalty: float = _setting(0.0, "answer", "lower the scores of tokens seen before", low=-2.0, high=2.0)
    frequency_penalty: float = _setting(0.0, "answer", "the same, times how often", low=-2.0, high=2.0)

    speculation: bool = _setting(True, "speculation", "draft tokens ahead; off is plain decoding")
    accept: str = _setting(
        "exact",
        "speculation",
        "`exact` keeps the model's own output; `typical` and `dynamic` are lossy",
        choices=("exact", "typical", "dynamic"),
    )
    budget: int | None = _setting(
        None, "speculation", "nodes of a tree, root included; what pays here if unset", low=1, high=256, artifact=True
    )
    tree: str = _setting(
        "auto",
        "speculation",
        "`auto`, `dynamic`, `static` (calibrated), DxB (2x3: two levels, three children each), or a JSON file of paths",
        artifact=True,
    )
    dynamic_tree: bool = _setting(
        True,
        "speculation",
        "grow the tree anew at every step; off: the calibrated tree",
        "--disable-dynamic-tree",
        artifact=True,
    )
    max_leaves: int = _setting(16, "speculation", "leaves of a tree that is grown at every step", low=1, high=256)
    breaker_rho: float | None = _setting(
        None, "speculation", "go plain after 3 rounds with rho_eff under this; by speed if unset", low=0.0, high=1.0
    )

    host: str = _setting("127.0.0.1", "serve", "address to listen on; 0.0.0.0 is every address of the machine")
    port: int = _setting(8642, "serve", "port to listen on", low=0, high=65535)
    api_keys: str | None = _setting(
        None, "serve", "file of API keys, one a line, `admin:` before those that may administrate; open if unset"
    )
    cors: tuple[str, ...] = _setting(
        (), "serve", "origin whose pages may ask; `localhost` is any port of this machine; may be given several times"
    )
    served_name: tuple[str, ...] = _setting(
        (), "serve", "further name that the model answers to; may be given several times"
    )
    any_model: bool = _setting(False, "serve", "answer whatever model name a request gives")
    max_rows: int = _setting(8, "serve", "requests decoded together", low=1, high=64)
    max_queue: int = _setting(64, "serve", "requests that may wait beside those; more are refused with 429", low=0)
    max_body: float = _setting(4.0, "serve", "MiB of a request's body", low=0.001)
    deadline: float | None = _setting(None, "serve", "seconds that a request may take", low=1.0)
    drain: float = _setting(30.0, "serve", "seconds that open requests get when the server is stopped", low=0.0)
    prefill_chunk: int = _setting(64, "serve", "prompt tokens run between two steps of the others", low=1)
    enable_tree_cache: bool = _setting(True, "serve", "reuse the KV of earlier requests of the same key")
    cache_memory: float = _setting(512.0, "serve", "MiB of KV kept for later requests", low=0.0)
    cache_memory_per_key: float | None = _setting(None, "serve", "MiB of that for one API key; all if unset", low=0.0)
    kv_cache_sharding: str = _setting(
        "auto",
        "serve",
        "tokens of a block of kept KV, which is reused in whole blocks; `auto` is 1, reuse to the last common token",
        choices=("auto", "16", "32", "64", "128", "256"),
    )
    shard_count: int | None = _setting(
        None, "serve", "blocks of KV kept for later requests; as many as --cache-memory holds if unset", low=1
    )
    metrics_prefix: str = _setting("medusa_", "serve", "what names of metrics begin with; or `vllm:`")
    tool_format: str | None = _setting(
        None,
        "serve",
        "how the model writes calls of tools; as its chat template tells if unset",
        choices=("hermes", "mistral", "mistral-args", "mistral-id", "qwen3-coder", "glm45", "glm47", "llama3"),
    )

    highlight: str = _setting(
        "auto",
        "terminal",
        "which tokens to mark in the answer; auto: `accepted` in chat and compare, else `none`",
        choices=("auto", "accepted", "step", "none"),
    )
    stream: bool = _setting(True, "terminal", "show the answer while it is made")
