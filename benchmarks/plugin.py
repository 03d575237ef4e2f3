"""The transformers plugin on a real model: is `generate` with trees the model's own greedy `generate`, and how fast?

    python benchmarks/plugin.py -m smollm2 --heads auto --prompts 100 --tokens 64 --json plugin.json

Every prompt is answered twice, hooked and as before, in turns. Equal, or a first difference whose two scores the model
itself puts within 0.001 of each other; each is listed. The exit status is 1 if there is any other.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from medusakit.artifact.find import find_heads
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
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()

    resolved = resolve(asked.model, offline=True)
    model = pretrained(resolved, threads=asked.threads)
    source = open_weights(resolved)
    heads = find_heads(asked.heads, source, model_path=resolved.path)
    tokenizer = load_tokenizer(resolved)
    questions = load_suite(asked.suite, limit=asked.prompts)
    prompts = [chat_ids(tokenizer, [{"role": "user", "content": question.turns[0]}]) for question in questions]
    handle = medusa_hook(model, heads, budget=asked.budget)
    settings = {"max_new_tokens": asked.tokens, "do_sample": False, "eos_token_id": sorted(tokenizer.eos_ids)}
    settings["pad_token_id"] = settings["eos_token_id"][0]
    seconds, tokens, differences = [0.0, 0.0], 0, []
    for index, ids in enumerate(prompts):
        answers = []
        for way, generate in enumerate((model.generate, handle.own_generate)):
            started = time.perf_counter()
            answers.append(answer(generate, ids, settings))
            seconds[way] += time.perf_counter() - started
        tokens += len(answers[1])
        if answers[0] != answers[1]:
            differences.append({"prompt": index} | parting(model, ids, *answers))
    document: dict[str, Any] = {
        "model": asked.model,
        "prompts": len(prompts),
        "tokens": tokens,
        "tau": handle.tau,
        "seconds": {"medusa": seconds[0], "hf": seconds[1]},
        "speedup": seconds[1] / seconds[0],
        "differences": differences,
    }
    print(json.dumps(document, indent=2))
    if asked.json:
        asked.json.write_text(json.dumps(document, indent=2) + "\n")
    return int(any(found["gap"] > TIE for found in differences))


def answer(generate: Any, ids: list[int], settings: dict[str, Any]) -> list[int]:
    prompt = torch.tensor([ids])
    output = generate(prompt, attention_mask=torch.ones_like(prompt), **settings)
    return output[0, len(ids) :].tolist()


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
