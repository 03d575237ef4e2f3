"""Rotary frequencies against transformers' own initialisers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from medusakit.errors import ModelError, UnsupportedModelError
from medusakit.models.hf_rope import read_rope
from medusakit.models.rope import inverse_frequencies
from medusakit.models.spec import RopeSpec

HEAD_DIM, CONTEXT = 64, 8192
LONG = {"short_factor": [1.0 + i / 50 for i in range(32)], "long_factor": [1.5 + i for i in range(32)]}
KINDS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_theta": 500000.0,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048, "rope_theta": 1e6},
    "yarn-betas": {
        "rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 512, "beta_fast": 20.0,
        "beta_slow": 2.0, "attention_factor": 1.3,
    },
    "yarn-mscale": {
        "rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 1024, "mscale": 1.2,
        "mscale_all_dim": 0.8,
    },
    "yarn-no-factor": {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 2048},
    "longrope": {"rope_type": "longrope", "original_max_position_embeddings": 2048, **LONG},
    "longrope-factor": {
        "rope_type": "longrope", "original_max_position_embeddings": 2048, "factor": 3.0, "attention_factor": 1.19,
        **LONG,
    },
}  # fmt: skip


def transformers_rope(parameters: dict[str, Any], length: int) -> tuple[np.ndarray, float]:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = LlamaConfig(
        hidden_size=4 * HEAD_DIM,
        num_attention_heads=4,
        max_position_embeddings=CONTEXT,
        rope_parameters={"rope_theta": 10000.0, **parameters},
    )
    frequencies, scale = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, "cpu", seq_len=length)
    return frequencies.numpy(), scale


@pytest.mark.parametrize("length", [100, CONTEXT])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_transformers(kind: str, length: int) -> None:
    parameters = {key: value for key, value in KINDS[kind].items()}
    rope = read_rope({}, parameters, HEAD_DIM, CONTEXT, Path("m"))
    ours, scale = inverse_frequencies(rope, length)
    theirs, their_scale = transformers_rope(parameters, length)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert scale == pytest.approx(their_scale, rel=1e-9)
    assert ours.dtype == np.float32


def test_plain_frequencies() -> None:
    ours, scale = inverse_frequencies(RopeSpec(10000.0, 8), 10)
    np.testing.assert_allclose(ours, [1.0, 0.1, 0.01, 0.001], rtol=1e-6)
    assert scale == 1.0


def test_longrope_changes_factors_just_past_the_trained_length() -> None:
    rope = read_rope({}, KINDS["longrope"], HEAD_DIM, CONTEXT, Path("m"))
    at, _ = inverse_frequencies(rope, 2048)
    past, _ = inverse_frequencies(rope, 2049)
    np.testing.assert_allclose(at / past, np.array(LONG["long_factor"]) / LONG["short_factor"], rtol=1e-5)


def test_divisors_of_a_gguf_replace_the_formula() -> None:
    plain, _ = inverse_frequencies(RopeSpec(10000.0, 8), 10)
    divided, _ = inverse_frequencies(RopeSpec(10000.0, 8, "llama3", divisors=(1.0, 2.0, 4.0, 8.0)), 10)
    np.testing.assert_allclose(plain / divided, [1, 2, 4, 8], rtol=1e-6)


def test_phi3_names_and_top_level_length() -> None:
    config = {"model_type": "phi3", "original_max_position_embeddings": 4096}
    for name in ("su", "longrope", "yarn"):
        rope = read_rope(config, {"type": name, **LONG}, HEAD_DIM, 131072, Path("m"))
        assert (rope.scaling, rope.original_context, rope.factor) == ("longrope", 4096, 32.0)


@pytest.mark.parametrize(
    ("rope", "error", "message"),
    [
        (
            {"rope_type": "dynamic", "factor": 2.0},
            UnsupportedModelError,
            "rope_type is 'dynamic'.*linear, llama3, yarn",
        ),
        ({"rope_type": "linear"}, ModelError, "factor is None, expected a positive number"),
        ({"rope_type": "linear", "factor": -1}, ModelError, "factor is -1"),
        ({"partial_rotary_factor": 0.5}, UnsupportedModelError, "partial_rotary_factor is 0.5"),
        ({"rope_type": "longrope", "short_factor": [1.0], "long_factor": []}, ModelError, "short_factor has 1 values"),
        ({"rope_type": "yarn", "factor": 2.0, "truncate": False}, UnsupportedModelError, "truncate is False"),
    ],
)
def test_refused(rope: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read_rope({}, rope, HEAD_DIM, CONTEXT, Path("m"))
