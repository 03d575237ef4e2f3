"""The reference runtime on a tiny model of every family: logits of transformers, and trees equal to their paths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from medusakit.models.resolve import open_weights, resolve
from medusakit.runtimes.reference import ReferenceRuntime
from medusakit.tree.topology import Topology, Tree
from tiny import VARIANTS, write_hf

LENGTH = 40  # past every tiny window and past phi3-longrope's trained length


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_equal_transformers(variant: str, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    folder = write_hf(tmp_path, variant, seed=2)
    ids = np.random.default_rng(3).integers(0, 128, LENGTH)
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    with torch.no_grad():
        expected = model(torch.from_numpy(ids)[None]).logits[0].numpy()
    runtime = ReferenceRuntime(open_weights(resolve(str(folder))), max_context=LENGTH)
    row = runtime.add_row()
    for position in range(LENGTH):
        logits = runtime.prefill(row, [int(ids[position])]).logits(0)
        np.testing.assert_allclose(logits, expected[position], atol=2e-4, rtol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_nodes_equal_plain_runs_of_their_paths(variant: str, tmp_path: Path) -> None:
    source = open_weights(resolve(str(write_hf(tmp_path, variant, seed=4))))
    runtime = ReferenceRuntime(source, max_context=64)
    random = np.random.default_rng(5)
    prompt = random.integers(0, 128, 12).tolist()
    tree = Tree(Topology.dense([2, 2, 1]), random.integers(0, 128, 11))
    row = runtime.add_row()
    runtime.prefill(row, prompt)
    scores = runtime.forward([(row, tree)])[0]
    plain = runtime.add_row()
    for node in range(tree.num_nodes):
        runtime.truncate(plain, 0)
        path = [int(tree.tokens[i]) for i in tree.topology.path(node)]
        expected = runtime.prefill(plain, prompt + path).logits(0)
        np.testing.assert_allclose(scores.logits(node), expected, atol=1e-5, rtol=0)
