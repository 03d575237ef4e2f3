"""Plain decoding against llama.cpp on the same model, prompt and threads, interleaved: python benchmarks/peers.py

    pip install llama-cpp-python                       # built on this machine, so that it uses what the processor has
    python benchmarks/peers.py --tokens 128 --repeats 3 --json peers.json [--heads DIR]

Every configuration is loaded at once; a round decodes the prompt once in each, in rotating order. tokens/s counts the
tokens after the first, prefill apart. llama.cpp is driven through its low-level calls (one decode and one argmax a
token), which is faster than its Python class. With heads, `medusa` runs too.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from gguf_variants import VARIANTS, variant

from medusakit import LLM, SamplingParams
from medusakit.bench.circumstances import machine, versions
from medusakit.models.home import home
from medusakit.models.resolve import resolve
from medusakit.runtimes.onnx.session import default_threads

PROMPT = "Explain in detail how a B-tree keeps its keys in order, and why databases use it."
FORMATS = ("f32", "int8", "int4")
# ours against the llama.cpp type that stores as many bits
PAIRS = {"f32": "F32", "int8": "Q8_0", "int4": "Q4_0"}


@dataclass(frozen=True, slots=True)
class Run:
    token_ids: tuple[int, ...]
    tokens_per_s: float


Decode = Callable[[Sequence[int], int], Run]


def ours(model: str, weights: str, heads: str, threads: int) -> LLM:
    return LLM.load(model, heads=heads, weights=weights, threads=threads, max_context=1024)


def decode_ours(llm: LLM, *, speculation: bool) -> Decode:
    def decode(ids: Sequence[int], num_tokens: int) -> Run:
        params = SamplingParams(max_tokens=num_tokens, ignore_eos=True)
        with llm.stream_ids(ids, params, speculation=speculation) as stream:
            for _ in stream:
                pass
            return Run(stream.result.token_ids, stream.result.stats.tokens_per_s)

    return decode


def decode_llama_cpp(path: Path, threads: int) -> Decode:
    """Greedy decoding with llama.cpp, end of sequence ignored."""
    import llama_cpp

    model = llama_cpp.Llama(
        str(path), n_ctx=1024, n_threads=threads, n_threads_batch=threads, verbose=False, logits_all=False
    )

    def best() -> int:
        pointer = llama_cpp.llama_get_logits_ith(model.ctx, -1)
        return int(np.ctypeslib.as_array(pointer, (model.n_vocab(),)).argmax())

    def decode(ids: Sequence[int], num_tokens: int) -> Run:
        model.reset()
        model.eval(list(ids))
        tokens = [best()]
        started = time.perf_counter()
        while len(tokens) < num_tokens:
            model.eval([tokens[-1]])
            tokens.append(best())
        return Run(tuple(tokens), (num_tokens - 1) / (time.perf_counter() - started))

    return decode


def measure(
    decoders: dict[str, Decode], ids: Sequence[int], *, num_tokens: int, repeats: int, pause_s: float = 0.2
) -> dict[str, list[Run]]:
    """Runs of every decoder, round by round; who goes first rotates. The pause lets spinning threads fall asleep."""
    runs: dict[str, list[Run]] = {name: [] for name in decoders}
    names = list(decoders)
    for decode in decoders.values():
        decode(ids, 4)
    for place in range(repeats):
        start = place % len(names)
        for name in (*names[start:], *names[:start]):
            time.sleep(pause_s)
            runs[name].append(decoders[name](ids, num_tokens))
    return runs


def document(runs: dict[str, list[Run]], settings: dict[str, Any]) -> dict[str, Any]:
    speeds = {name: median(run.tokens_per_s for run in found) for name, found in runs.items()}
    theirs = {name: speed for name, speed in speeds.items() if name.startswith("llama.cpp")}
    mine = {name: speed for name, speed in speeds.items() if name not in theirs}
    pairs = {
        f"{name}/llama.cpp {PAIRS[name.split()[0]]}": speed / theirs[f"llama.cpp {PAIRS[name.split()[0]]}"]
        for name, speed in mine.items()
        if f"llama.cpp {PAIRS[name.split()[0]]}" in theirs
    }
    if theirs and mine:
        pairs["fastest/llama.cpp fastest"] = max(mine.values()) / max(theirs.values())
    return {
        "tokens_per_s": speeds,
        "runs": {name: [run.tokens_per_s for run in found] for name, found in runs.items()},
        "ratio": pairs,
        "same_tokens_as_f32": {name: _common(found[0], runs["f32 plain"][0]) for name, found in runs.items()},
        "config": settings,
        "machine": machine(),
        "versions": versions() | _llama_version(),
    }


def _common(left: Run, right: Run) -> int:
    """Tokens until two answers part."""
    pairs = list(zip(left.token_ids, right.token_ids, strict=False))
    return next((place for place, (a, b) in enumerate(pairs) if a != b), len(pairs))


def _llama_version() -> dict[str, str]:
    try:
        import llama_cpp
    except ImportError:
        return {}
    return {"llama-cpp-python": llama_cpp.__version__}


def show(found: dict[str, Any]) -> None:
    print(f"{'':18}{'tok/s':>9}{'least':>9}{'most':>9}   same tokens as f32")
    for name, speed in found["tokens_per_s"].items():
        runs = found["runs"][name]
        print(f"{name:18}{speed:9.1f}{min(runs):9.1f}{max(runs):9.1f}   {found['same_tokens_as_f32'][name]}")
    for pair, ratio in found["ratio"].items():
        print(f"{pair}: {ratio:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="alias or .gguf")
    parser.add_argument("--heads", default="none", help="artifact folder or auto: measure medusa too")
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--variants", default=",".join(VARIANTS), help="GGUF types for llama.cpp; empty: none")
    parser.add_argument("--folder", type=Path, default=None, help="where the variants lie [MEDUSA_HOME/peers]")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    source = resolve(options.model).path
    decoders: dict[str, Decode] = {}
    for weights in filter(None, options.formats.split(",")):
        llm = ours(options.model, weights, options.heads, options.threads)
        ids = llm.encode(PROMPT)
        decoders[f"{weights} plain"] = decode_ours(llm, speculation=False)
        if llm.parts.speculation.drafter is not None:
            decoders[f"{weights} medusa"] = decode_ours(llm, speculation=True)
    for name in filter(None, options.variants.split(",")):
        path = variant(source, options.folder or home() / "peers", name)
        decoders[f"llama.cpp {name}"] = decode_llama_cpp(path, options.threads)
    runs = measure(decoders, ids, num_tokens=options.tokens, repeats=options.repeats)
    settings = {"model": options.model, "prompt": PROMPT, "tokens": options.tokens, "threads": options.threads}
    found = document(runs, settings | {"repeats": options.repeats})
    show(found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
