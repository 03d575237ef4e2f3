"""The CPU runtime against transformers, every family: chunked prompts, trees, ragged rows, the end of the context."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from medusakit.models.resolve import open_weights, resolve
from medusakit.runtimes.onnx import runtime as runtime_module
from medusakit.runtimes.onnx.runtime import OnnxRuntime, load_onnx
from medusakit.tree.topology import Topology, Tree
from tiny import VARIANTS, write_hf

Logits = Callable[[list[int]], NDArray[np.float32]]
ATOL = 2e-4
PROMPT = np.random.default_rng(5).integers(0, 128, 20).tolist()  # past every tiny window (8, 9)
DENSE = Topology.dense([2, 3])


def random_topology(num_nodes: int, seed: int) -> Topology:
    rng = np.random.default_rng(seed)
    return Topology.from_parents([-1, *(int(rng.integers(max(0, i - 3), i)) for i in range(1, num_nodes))])


def tree(topology: Topology, seed: int) -> Tree:
    return Tree(topology, np.random.default_rng(seed).integers(0, 128, topology.num_nodes))


def path_ids(tree: Tree, node: int) -> list[int]:
    return [int(tree.tokens[i]) for i in tree.topology.path(node)]


def transformers_logits(folder: Path) -> Logits:
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")

    def logits(ids: list[int]) -> NDArray[np.float32]:
        with torch.no_grad():
            found: NDArray[np.float32] = model(torch.tensor([ids])).logits[0, -1].numpy()
        return found

    return logits


@pytest.fixture(scope="module", params=VARIANTS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Logits]:
    folder = write_hf(tmp_path_factory.mktemp("model") / "m", request.param, seed=1)
    return folder, transformers_logits(folder)


def load(folder: Path, **options: Any) -> OnnxRuntime:
    return load_onnx(open_weights(resolve(str(folder))), threads=1, cache_dir=folder / "graphs", **options)


def assert_nodes_equal(scores: Any, tree: Tree, prefix: list[int], logits: Logits) -> None:
    for node in range(tree.num_nodes):
        expected = logits([*prefix, *path_ids(tree, node)])
        assert expected.std() > 0.1
        np.testing.assert_allclose(scores.logits(node), expected, atol=ATOL, err_msg=f"node {node}")


def test_trees_after_a_chunked_prompt(model: tuple[Path, Logits], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_module, "_CHUNK", 7)
    folder, logits = model
    runtime = load(folder)
    row = runtime.add_row()
    np.testing.assert_allclose(runtime.prefill(row, PROMPT).logits(0), logits(PROMPT), atol=ATOL)
    for drafted in (tree(DENSE, 1), tree(random_topology(6, 2), 2)):
        assert_nodes_equal(runtime.forward([(row, drafted)])[0], drafted, PROMPT, logits)


def test_going_on_after_a_commit(model: tuple[Path, Logits]) -> None:
    folder, logits = model
    runtime = load(folder)
    row = runtime.add_row()
    runtime.prefill(row, PROMPT)
    drafted = tree(DENSE, 3)
    runtime.forward([(row, drafted)])
    runtime.commit(row, [0, 2, 8])
    prefix = PROMPT + path_ids(drafted, 8)
    following = tree(random_topology(5, 4), 4)
    assert_nodes_equal(runtime.forward([(row, following)])[0], following, prefix, logits)


def test_ragged_rows(model: tuple[Path, Logits]) -> None:
    folder, logits = model
    runtime = load(folder, max_rows=3)
    prompts = [PROMPT, PROMPT[:1], PROMPT[:9]]
    trees = [Tree.plain(7), tree(random_topology(9, 5), 5), tree(Topology.chain(2), 6)]
    rows = []
    for prompt in prompts:
        rows.append(runtime.add_row())
        runtime.prefill(rows[-1], prompt)
    for scores, drafted, prompt in zip(
        runtime.forward(list(zip(rows, trees, strict=True))), trees, prompts, strict=True
    ):
        assert_nodes_equal(scores, drafted, prompt, logits)


def test_a_prompt_that_fills_the_context_but_for_one(model: tuple[Path, Logits]) -> None:
    folder, logits = model
    runtime = load(folder)
    limit = runtime.capabilities.max_context
    ids = np.random.default_rng(8).integers(0, 128, limit - 1).tolist()
    row = runtime.add_row()
    np.testing.assert_allclose(runtime.prefill(row, ids).logits(0), logits(ids), atol=ATOL)
    last = Tree.plain(3)
    np.testing.assert_allclose(runtime.forward([(row, last)])[0].logits(0), logits([*ids, 3]), atol=ATOL)


def test_longrope_uses_its_long_factors_where_the_context_is_long(tmp_path: Path) -> None:
    folder = write_hf(tmp_path / "m", "phi3-longrope", seed=1)
    logits = transformers_logits(folder)
    ids = np.random.default_rng(8).integers(0, 128, 60).tolist()  # transformers changes factors past 32
    runtime = load(folder, max_context=256)
    row = runtime.add_row()
    np.testing.assert_allclose(runtime.prefill(row, ids).logits(0), logits(ids), atol=ATOL)
    short = load(folder)
    assert short.capabilities.max_context == 32


@pytest.mark.parametrize(
    ("variant", "overrides"),
    [
        ("llama", {"head_dim": 4}),
        ("qwen3", {"head_dim": 24}),
        ("gemma3", {"head_dim": 8}),
        ("phi3-longrope", {"num_attention_heads": 2, "num_key_value_heads": 2}),
    ],
)
def test_heads_of_any_size(tmp_path: Path, variant: str, overrides: dict[str, Any]) -> None:
    """Heads that the kernel does not take are spread over larger ones; the model does not notice."""
    if variant == "phi3-longrope":
        factors = [1.0 + 0.1 * i for i in range(8)]
        overrides["rope_scaling"] = {"type": "longrope", "short_factor": factors, "long_factor": factors}
    folder = write_hf(tmp_path / "m", variant, seed=2, **overrides)
    logits = transformers_logits(folder)
    runtime = load(folder)
    row = runtime.add_row()
    runtime.prefill(row, PROMPT)
    drafted = tree(DENSE, 1)
    assert_nodes_equal(runtime.forward([(row, drafted)])[0], drafted, PROMPT, logits)
