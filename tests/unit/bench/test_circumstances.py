"""What a measured document says about how it came about."""

from __future__ import annotations

import json

from bench_fakes import toy_llm
from medusakit.bench.circumstances import circumstances
from medusakit.settings import SamplingParams


def test_everything_that_a_figure_depends_on() -> None:
    found = circumstances(toy_llm(), {"suite": "mt-bench"}, SamplingParams(temperature=0.8, seed=4))
    assert found["config"]["suite"] == "mt-bench"
    assert (found["config"]["params"]["temperature"], found["config"]["params"]["seed"]) == (0.8, 4)
    assert found["machine"].keys() == {"cpu", "system", "python"} and all(found["machine"].values())
    assert (found["model"]["weights"], found["model"]["nodes"]) == ("f32", 7)
    assert len(found["model"]["fingerprint"]) > 0
    assert {"medusakit", "numpy", "onnxruntime"} <= found["versions"].keys()
    json.dumps(found, allow_nan=False)
