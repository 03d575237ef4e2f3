"""What becomes of a family of transformers in the torch runtime.

python tests/family_outcome.py [FAMILY ...]      a line each, and how many of which kind; all without arguments
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, GenerationConfig

from medusakit.engine.controller import PlainController
from medusakit.errors import ModelError
from medusakit.models.resolve import ResolvedModel
from medusakit.runtimes.base import Runtime
from medusakit.runtimes.torch.load import load_torch
from medusakit.settings import SamplingParams
from tiny_families import FAMILIES, TEXT, VOCAB, tiny_model
from torch_families import answer, controllers, same_but_for_ties

RIGHT = ("trees", "chains", "plain", "refused", "not built")
TOKENS = 24


@dataclass(frozen=True, slots=True)
class Outcome:
    """kind  trees, chains or plain: decoded so, exactly; refused: with a reason, by an error for people; not built: a
    tiny model cannot be made, or does not answer a text alone by transformers itself; differs: a fault of ours
    reason  why no trees
    """

    kind: str
    reason: str = ""


def outcome(family: str) -> Outcome:
    """Anything that is raised here is a fault of ours."""
    prompt = np.random.default_rng(7).integers(3, TEXT, 14).tolist()
    with tempfile.TemporaryDirectory() as folder:
        try:
            own, whole = saved(family, prompt, folder)
        except Exception as error:  # a configuration or a model may say no to these sizes in any way
            return Outcome("not built", f"{type(error).__name__}: {error}")
        try:
            runtime = load_torch(ResolvedModel(family, Path(folder), "hf")).runtime
        except ModelError as error:
            return Outcome("refused", error.message)
        return decoded(runtime, prompt, own, whole)


def saved(family: str, prompt: list[int], folder: str) -> tuple[list[int], list[int]]:
    """(transformers' own greedy answer, that of the model without a cache); writes the model's files."""
    model = tiny_model(family)
    model.generation_config = GenerationConfig(pad_token_id=0)  # nothing ends an answer, nothing is forced
    model.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)  # a part of a larger model may not be one that can be read
    own, whole = (generated(model, prompt, cache) for cache in (True, False))
    return own, whole


def generated(model: Any, prompt: list[int], cache: bool) -> list[int]:
    ids = torch.tensor([prompt])
    found = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS, do_sample=False, use_cache=cache
    )
    return found[0, len(prompt) :].tolist()


def decoded(runtime: Runtime, prompt: list[int], own: list[int], whole: list[int]) -> Outcome:
    capabilities, params = runtime.capabilities, SamplingParams(max_tokens=TOKENS)
    kind = "trees" if capabilities.trees else "chains" if capabilities.chains else "plain"
    plain, session = answer(runtime, PlainController(), prompt, params)
    if not same_but_for_ties(runtime, session, prompt, plain, own):
        if same_but_for_ties(runtime, session, prompt, own, whole) or plain != whole:
            return Outcome("differs", f"plain decoding from generate, as {kind}")
        reason = "transformers' generate says other than the model does without its cache; this runtime says the latter"
        capabilities = replace(capabilities, limit=f"{capabilities.limit}. {reason}")
    for controller in controllers([*prompt, *plain], VOCAB, capabilities.trees) if capabilities.chains else ():
        found, _ = answer(runtime, controller, prompt, params)
        if not same_but_for_ties(runtime, session, prompt, found, plain):
            return Outcome("differs", f"{kind} from plain decoding")
    return Outcome(kind, capabilities.limit)


def main(families: list[str]) -> None:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    found: dict[str, Any] = {}
    for family in families or FAMILIES:
        try:
            found[family] = outcome(family)
        except Exception as error:
            found[family] = Outcome("crashed", f"{type(error).__name__}: {error}")
        print(f"{found[family].kind:10} {family:28} {' '.join(found[family].reason.split())[:400]}", flush=True)
    print(dict(Counter(outcome.kind for outcome in found.values())))


if __name__ == "__main__":
    main(sys.argv[1:])
