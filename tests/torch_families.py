"""Random tiny models of many families, an oracle that guesses right in parts, and how answers are compared."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from fakes import ByteTokenizer
from medusakit.drafters.base import DraftState
from medusakit.drafters.hybrid.drafter import HybridDrafter, Source
from medusakit.drafters.registry import headless_drafter
from medusakit.engine.controller import FixedController
from medusakit.engine.engine import Engine
from medusakit.engine.plan import make_plan
from medusakit.runtimes.base import Runtime
from medusakit.settings import SamplingParams
from medusakit.tree.policy import DynamicPolicy, StaticPolicy
from medusakit.tree.topology import Draft, Shape, Topology
from medusakit.verify.gap import score_gap

torch.set_num_threads(1)  # tiny products: a second thread only waits
TIE = 1e-3
BASE: dict[str, Any] = {
    "vocab_size": 258, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": 256, "eos_token_id": 257,
    "pad_token_id": 0,
}  # fmt: skip
SMALL = {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 256}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 8},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "gemma2": {"head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 16},
    "gemma3_text": {"head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 16, "sliding_window_pattern": 3},
    "phi3": {"sliding_window": 9},
    "gpt_neox": {},
    "gpt2": SMALL,
    "opt": {"ffn_dim": 96, "word_embed_proj_dim": 64},
    "falcon": {"multi_query": True, "alibi": False, "parallel_attn": True},
    "olmo2": {},
    "granite": {"logits_scaling": 2.0},
    "mixtral": {"num_local_experts": 4},
    "qwen3_moe": {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48},
    "exaone4": {"sliding_window": 8},
    "gptj": SMALL | {"rotary_dim": 8},
}
CHAINS = {"bloom": {"n_layer": 3, "n_head": 4}, "mpt": {"d_model": 64, "n_heads": 4, "n_layers": 3, "max_seq_len": 256}}
PLAIN: dict[str, dict[str, Any]] = {
    "mamba": {"state_size": 8},
    "bamba": {
        "attn_layer_indices": [1], "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 16, "mamba_n_groups": 1,
    },
    "falcon_h1": {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 16},
    "lfm2": {"layer_types": ["conv", "full_attention", "conv"]},
}  # fmt: skip
ALL = FAMILIES | CHAINS | PLAIN
SETTINGS = [
    SamplingParams(max_tokens=24),
    SamplingParams(max_tokens=24, temperature=0.9, top_p=0.95, top_k=40, seed=3),
]


@lru_cache(maxsize=1)
def model_of(family: str) -> Any:
    """A random model whose attention is not flat, and whose scores lie about as far apart as a real one's."""
    torch.manual_seed(len(family))
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **BASE | ALL[family]), dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
    return model.eval()


class Oracle:
    """Knows the answer, and guesses it beside wrong tokens: right for two steps in three, so that every path occurs."""

    name, max_depth = "oracle", 4

    def __init__(self, ids: list[int]) -> None:
        self._ids = ids

    def propose(self, states: list[DraftState], shape: Shape) -> list[Draft]:
        return [self._draft(state, shape) for state in states]

    def observe(self, row: int, kept_ids: object, hidden: object) -> None: ...

    def forget(self, row: int) -> None: ...

    def _draft(self, state: DraftState, shape: Shape) -> Draft:
        assert isinstance(shape, Topology)
        at, tokens = len(state.ids), [state.root_id]
        for node in range(1, shape.num_nodes):
            depth, place = int(shape.depths[node]), at + int(shape.depths[node]) - 1
            right = self._ids[place] if place < len(self._ids) else 0
            is_right = int(shape.ranks[node]) == (place + depth) % 3
            tokens.append(right if is_right else (right + 1 + int(shape.ranks[node])) % 256)
        return Draft(shape, np.array(tokens), np.full(shape.num_nodes, -1.0, np.float32))


def prompt_of(seed: int, length: int = 14) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, length).tolist()


def answer(runtime: Runtime, controller: Any, prompt: list[int], params: SamplingParams) -> tuple[list[int], Any]:
    engine = Engine(runtime, ByteTokenizer(), controller)
    session = engine.start(prompt, params)
    for _ in engine.run(session):
        pass
    engine.finish(session)
    return list(session.output_ids), session


def same_but_for_ties(
    runtime: Runtime, session: Any, prompt: list[int], found: list[int], plain: list[int], tie: float = TIE
) -> bool:
    """Equal, or parted where the model's own scores are within a tie."""
    if found == plain:
        return True
    at = next(i for i, (a, b) in enumerate(zip(found, plain, strict=False)) if a != b)
    row = runtime.add_row()
    logits = runtime.prefill(row, [*prompt, *plain[:at]]).logits(0).copy()
    runtime.drop_row(row)
    return score_gap(session.fresh_rule, logits, [*prompt, *plain[:at]], found[at], plain[at]) <= tie


def controllers(ids: list[int], vocab_size: int, trees: bool) -> list[Any]:
    shapes = [Topology.dense([3, 2, 1]), Topology.dense([2, 2]), Topology.chain(4)] if trees else [Topology.chain(4)]
    fixed = [make_plan(Oracle(ids), StaticPolicy(shape), shape.num_nodes) for shape in shapes]
    free = HybridDrafter([Source(*headless_drafter(name, vocab_size=vocab_size)) for name in ("suffix", "recycling")])
    grown = make_plan(free, DynamicPolicy(free.beam, max_leaves=None if trees else 1), 12)
    return [FixedController(plan) for plan in (*fixed, grown)]
