"""The transformers plugin on a real model: is `generate` with trees the model's own greedy `generate`, and how fast?

    python benchmarks/plugin.py -m smollm2 --heads auto --prompts 100 --tokens 64 --json plugin.json

Every prompt is answered twice, by a hooked model and by another copy of it that is as transformers loaded it, in turns
that change who is first. Equal, or a first difference whose two scores the model
itself puts within 0.001 of each other; each is listed. The exit status is 1 if there is any other.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from medusakit.artifact.find import find_heads
from medusakit.bench.stats import paired_ratio
from medusakit.bench.workloads import load_suite
from medusakit.integrations.transformers import medusa_hook
from medusakit.models.resolve import open_weights, resolve
from medusakit.runtimes.torch.load import pretrained
from medusakit.text.chat import chat_ids
from medusakit.text.tokenizer import load_tokenizer

TIE = 1e-3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="smollm2")
    parser.add_argument("--heads", default="auto", help="auto, none, or a folder")
    parser.add_argument("--suite", default="spec-bench")
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--budget", type=int, default=6)
    parser.add_argument("--no-pack", action="store_true", help="leave the linear layers as they lie")
    parser.add_argument("--skip", type=int, default=0, help="questions of the suite to leave out first")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no prompt after so many")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()

    resolved = resolve(asked.model, offline=True)
    own, hooked = (pretrained(resolved, threads=asked.threads) for _ in range(2))
    tokenizer = load_tokenizer(resolved)
    heads = find_heads(asked.heads, open_weights(resolved), model_path=resolved.path)
    handle = medusa_hook(hooked, heads, budget=asked.budget, pack=not asked.no_pack)
    questions = load_suite(asked.suite, limit=asked.skip + asked.prompts)[asked.skip :]
    prompts = [chat_ids(tokenizer, [{"role": "user", "content": question.turns[0]}]) for question in questions]
    settings = {"max_new_tokens": asked.tokens, "do_sample": False, "eos_token_id": sorted(tokenizer.eos_ids)}
    settings["pad_token_id"] = settings["eos_token_id"][0]
    for model in (own, hooked):
        answer(model, prompts[0][:8], settings | {"max_new_tokens": 8})  # what only a first call costs
    handle.num_steps = handle.num_tokens = 0
    rounds, differences, started = [], [], time.perf_counter()
    for index, ids in enumerate(prompts):
        if time.perf_counter() - started > asked.seconds:
            break
        pair = [(own, hooked), (hooked, own)][index % 2]
        found = {id(model): answer(model, ids, settings) for model in pair}
        (before, before_s), (ours, ours_s) = found[id(own)], found[id(hooked)]
        rounds.append((len(ours), ours_s, len(before), before_s))
        parted = parting(own, ids, ours, before) if ours != before else None
        if parted:
            differences.append({"prompt": asked.skip + index} | parted)
        line = f"{index + 1} of {len(prompts)}: {before_s:.2f} s, hooked {ours_s:.2f} s, {parted or 'equal'}"
        print(line, file=sys.stderr, flush=True)
    sums = [sum(column) for column in zip(*rounds, strict=True)]
    document: dict[str, Any] = {
        "model": asked.model,
        "prompts": len(rounds),
        "tokens": sums[2],
        "tau": handle.tau,
        "tokens_per_s": {"medusa": sums[0] / sums[1], "hf": sums[2] / sums[3]},
        "speedup": asdict(paired_ratio(rounds)),
        "differences": differences,
    }
    print(json.dumps(document, indent=2))
    if asked.json:
        asked.json.write_text(json.dumps(document, indent=2) + "\n")
    return int(any(found["gap"] > TIE for found in differences))


def answer(model: Any, ids: list[int], settings: dict[str, Any]) -> tuple[list[int], float]:
    """(ids of the answer, seconds), prompt included."""
    prompt = torch.tensor([ids])
    started = time.perf_counter()
    output = model.generate(prompt, attention_mask=torch.ones_like(prompt), **settings)
    return output[0, len(ids) :].tolist(), time.perf_counter() - started


def parting(model: Any, ids: list[int], ours: list[int], before: list[int]) -> dict[str, Any]:
    """Where two answers part, and the distance of the two scores there by the model's own forward."""
    at = next((i for i, (a, b) in enumerate(zip(ours, before, strict=False)) if a != b), None)
    if at is None:
        return {"at": min(len(ours), len(before)), "gap": float("inf")}
    with torch.no_grad():
        scores = model(torch.tensor([[*ids, *before[:at]]])).logits[0, -1]
    return {"at": at, "gap": abs(float(scores[ours[at]] - scores[before[at]]))}


if __name__ == "__main__":
    raise SystemExit(main())
