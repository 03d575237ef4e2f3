"""A step of a llama-7B-shaped model of random weights on a CUDA device: T(n), the memory's limit, the host's share.

    python benchmarks/gpu_step.py --json gpu.json
    python benchmarks/gpu_step.py --device cpu --layers 2 --hidden 64 --ffn 128 --vocab 256   # does it run at all

T(n) is the wall time of a whole step of n nodes: tree in, pass, result out, walk, commit. The limit is the bytes that a
plain pass must read (weights without the embedding, the cells of the bucket) over the bandwidth of a copy on the same
device. The host's share is what of a step's wall time lies outside of the graph, by events. Exactness is checked in
float32 on a model of the same width with fewer layers: trees that are right in part against plain decoding and against
transformers' own greedy `generate`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AutoConfig, AutoModelForCausalLM

from medusakit.artifact.schema import DrafterConfig
from medusakit.bench.circumstances import machine, versions
from medusakit.drafters.base import DraftState
from medusakit.drafters.hybrid.drafter import HybridDrafter, Source
from medusakit.drafters.registry import trained_drafter
from medusakit.engine.controller import FixedController, PlainController
from medusakit.engine.engine import Engine
from medusakit.engine.plan import make_plan
from medusakit.engine.speculation import heads_beam
from medusakit.errors import MedusaError
from medusakit.models.spec import WeightSource
from medusakit.runtimes.base import Runtime
from medusakit.runtimes.torch.device.attention import TreeAttention, tree_attention_for
from medusakit.runtimes.torch.device.buckets import Bucket, cells_bucket
from medusakit.runtimes.torch.device.runtime import DeviceRuntime
from medusakit.runtimes.torch.load import WEIGHTS, torch_parts
from medusakit.runtimes.torch.masks import layer_windows
from medusakit.settings import SamplingParams
from medusakit.tree.policy import DynamicPolicy, StaticPolicy
from medusakit.tree.topology import Draft, Shape, Topology, Tree
from medusakit.verify.gap import score_gap
from medusakit.verify.greedy import GreedyRule
from medusakit.verify.walk import walk

SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64)
BACKENDS = {"efficient": SDPBackend.EFFICIENT_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION, "math": SDPBackend.MATH}
BARS = {"t1_over_limit": 1.2, "t64_over_t1": 1.25, "host_share": 0.05}  # at most
HEADS = 4
TIE = 1e-3


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    options = _options(arguments)
    started = time.perf_counter()
    torch.manual_seed(0)
    device = torch.device(options.device)
    if device.type == "cpu":
        torch.set_num_threads(1)  # small shapes: a second thread only waits
    document: dict[str, Any] = {
        "config": {name: value for name, value in vars(options).items() if name != "json"},
        "machine": machine(),
        "versions": versions(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
    }
    bandwidth = _bandwidth(device)
    model = _model(options, device, options.layers, WEIGHTS[options.dtype])
    source, runtime = _prepared(model)
    document |= {"eager": runtime.capabilities.eager, "bandwidth_bytes_per_s": bandwidth}
    document |= _steps(runtime, options, bandwidth)
    document["decoding"] = _decoding(source, runtime, options)
    document["attends"] = runtime.attention.shown()
    document["attention_ms"] = _attention(model, options)
    runtime.close()
    del model, source, runtime
    if device.type == "cuda":
        torch.cuda.empty_cache()
    document["exactness"] = _exactness(options, device)
    document["bars"] = {name: {"most": most, "found": document[name]} for name, most in BARS.items()}
    document["seconds"] = round(time.perf_counter() - started, 1)
    _show(document)
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return document


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1; cpu only to see that it runs")
    parser.add_argument("--dtype", default="bf16", choices=sorted(WEIGHTS))
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--ffn", type=int, default=11008)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--kv-heads", type=int, help="fewer than the attention heads: grouped queries")
    parser.add_argument("--context", type=int, default=512, help="positions that the row holds")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--exact-layers", type=int, default=4, help="of the float32 model")
    parser.add_argument("--exact-tokens", type=int, default=128)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    if "cuda" in options.device and not torch.cuda.is_available():
        parser.error(f"torch {torch.__version__} sees no CUDA device; try: --device cpu with a small shape")
    return options


def _model(options: argparse.Namespace, device: Any, layers: int, dtype: str) -> Any:
    heads = max(1, options.hidden // 128) if options.hidden >= 256 else 2
    config = AutoConfig.for_model(
        "llama", vocab_size=options.vocab, hidden_size=options.hidden, intermediate_size=options.ffn,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=options.kv_heads or heads,
        max_position_embeddings=4096, tie_word_embeddings=False, bos_token_id=1, eos_token_id=None,
    )  # fmt: skip
    with device:
        return AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype)).eval()


def _prepared(model: Any) -> tuple[WeightSource, DeviceRuntime]:
    parts = torch_parts(model, prepared=True)
    runtime = parts.runtime
    if not isinstance(runtime, DeviceRuntime):
        raise SystemExit(f"no prepared passes: {runtime.capabilities.eager or runtime.capabilities.limit}")
    return parts.source, runtime


def _bandwidth(device: Any) -> float:
    """Bytes read and written a second by a copy that no cache holds; the best of some."""
    count = (1 << 30 if device.type == "cuda" else 1 << 26) // 2
    source = torch.ones(count, dtype=torch.float16, device=device)
    target, best = torch.empty_like(source), float("inf")
    for _ in range(10):
        with _Stopwatch(device) as watch:
            target.copy_(source)
        best = min(best, watch.seconds())
    return 2 * source.nbytes / best


class _Stopwatch:
    """Seconds of what is launched inside: by events on the device, by the clock on the CPU."""

    def __init__(self, device: Any) -> None:
        self._cuda = device.type == "cuda"
        self._marks: list[Any] = []

    def __enter__(self) -> _Stopwatch:
        self._mark()
        return self

    def __exit__(self, *exception: object) -> None:
        self._mark()

    def seconds(self) -> float:
        first, last = self._marks
        if not self._cuda:
            return float(last - first)
        last.synchronize()
        return float(first.elapsed_time(last)) / 1e3

    def _mark(self) -> None:
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())


@contextmanager
def _watched(runtime: DeviceRuntime) -> Iterator[list[_Stopwatch]]:
    """A stopwatch around every pass of the runtime."""
    own, watches = runtime.graphs.run, list[_Stopwatch]()

    def run(key: Any, work: Callable[[], None]) -> None:
        with _Stopwatch(runtime.model.device) as watch:
            own(key, work)
        watches.append(watch)

    runtime.graphs.run = run  # type: ignore[method-assign]
    try:
        yield watches
    finally:
        runtime.graphs.run = own  # type: ignore[method-assign]


def _filled(runtime: Runtime, context: int) -> int:
    row = runtime.add_row()
    runtime.prefill(row, np.random.default_rng(0).integers(2, runtime.spec.vocab_size, context).tolist())
    return row


def _timed(runtime: DeviceRuntime, row: int, nodes: int, repeats: int) -> tuple[list[float], list[float]]:
    """Seconds of whole steps, and of their passes on the device."""
    context, walls, random = runtime.length(row), [], np.random.default_rng(nodes)
    shape = Topology.from_parents([-1, *((node - 1) // 2 for node in range(1, nodes))])
    with _watched(runtime) as watches:
        for _ in range(repeats + 3):
            started = time.perf_counter()
            tree = Tree(shape, random.integers(0, runtime.spec.vocab_size, nodes))
            scores = runtime.forward([(row, tree)])[0]
            path = walk(tree, scores, GreedyRule(), [0])
            runtime.commit(row, path.nodes)
            scores.hidden(path.nodes[-1]).copy()
            walls.append(time.perf_counter() - started)
            runtime.truncate(row, context)
        passes = [watch.seconds() for watch in watches]
    return walls[3:], passes[3:]  # the first ones capture and warm up


def _steps(runtime: DeviceRuntime, options: argparse.Namespace, bandwidth: float) -> dict[str, Any]:
    row = _filled(runtime, options.context)
    table, hosts = {}, []
    for nodes in SIZES:
        walls, passes = _timed(runtime, row, nodes, options.repeats)
        wall, on_device = statistics.median(walls), statistics.median(passes)
        hosts.append(1 - on_device / wall)
        table[str(nodes)] = {
            "wall_ms": 1e3 * wall, "pass_ms": 1e3 * on_device, "least_ms": 1e3 * min(walls), "host_share": hosts[-1],
        }  # fmt: skip
    runtime.drop_row(row)
    read = _bytes_read(runtime, options.context)
    limit, first, last = read / bandwidth, table["1"]["wall_ms"], table["64"]["wall_ms"]
    return {
        "step_ms": table,
        "bytes_read": read,
        "limit_ms": 1e3 * limit,
        "t1_over_limit": first / (1e3 * limit),
        "t64_over_t1": last / first,
        "host_share": max(hosts),
    }


def _bytes_read(runtime: DeviceRuntime, context: int) -> int:
    """Weights but for the embedding, of which a pass reads a row a node, and the cells that attention looks at."""
    model, spec = runtime.model.hf, runtime.spec
    weights = sum(parameter.nbytes for parameter in model.parameters()) - model.get_input_embeddings().weight.nbytes
    cells = cells_bucket(context + 1, runtime.capabilities.max_context)
    size = torch.empty(0, dtype=runtime.model.dtype).element_size()
    return int(weights + 2 * spec.num_layers * spec.num_kv_heads * spec.head_dim * cells * size)


def _decoding(source: WeightSource, runtime: DeviceRuntime, options: argparse.Namespace) -> dict[str, float]:
    """The whole engine with untrained heads on the device (they repeat the LM head's guess): milliseconds of a step,
    and the share of it that no graph runs. Untrained heads are hardly ever right, so tau says nothing."""
    hidden, vocab = runtime.spec.hidden_size, runtime.spec.vocab_size
    config = DrafterConfig(family="medusa", depth=HEADS, draft_vocab_size=0, params={"blocks": 1})
    tensors = {
        "blocks.0.weight": np.zeros((HEADS, hidden, hidden), np.float32),
        "blocks.0.bias": np.zeros((HEADS, hidden), np.float32),
    }
    drafter = trained_drafter(config, tensors, source, runtime=runtime)
    hybrid = HybridDrafter([Source(drafter, heads_beam(HEADS, 64), costly=False)])
    engine = Engine(runtime, _Ids(), FixedController(make_plan(hybrid, DynamicPolicy(hybrid.beam), 64)))
    prompt = np.random.default_rng(1).integers(2, vocab, options.context).tolist()
    session = engine.start(prompt, SamplingParams(max_tokens=options.repeats + 8, ignore_eos=True))
    walls, passes = [], []
    while session.running:
        with _watched(runtime) as watches:
            started = time.perf_counter()
            engine.step()
            walls.append(time.perf_counter() - started)
            passes.append(sum(watch.seconds() for watch in watches))
    engine.finish(session)
    wall, on_device = statistics.median(walls[5:]), statistics.median(passes[5:])
    return {"step_ms": 1e3 * wall, "pass_ms": 1e3 * on_device, "host_share": 1 - on_device / wall}


class _Ids:
    """A tokenizer of nothing: token ids are the answer."""

    vocab_size = 1 << 30
    eos_ids: frozenset[int] = frozenset()
    special_ids: frozenset[int] = frozenset()
    space_prefix = False

    def token_bytes(self, token_id: int) -> bytes:
        return b""


def _attention(model: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of passes of 1 and 64 nodes with our kernel and with each that torch has for attention under a mask;
    why not, where one does not run here."""
    found: dict[str, Any] = {}
    for name in ("ours", *BACKENDS):
        try:
            with sdpa_kernel([BACKENDS[name]]) if name in BACKENDS else nullcontext():
                runtime = _attending(model, _OneKernel if name == "ours" else _TorchKernels)
                row = _filled(runtime, options.context)
                passes = {nodes: _timed(runtime, row, nodes, options.repeats)[1] for nodes in (1, 64)}
                found[name] = {str(nodes): 1e3 * statistics.median(times) for nodes, times in passes.items()}
                if runtime.attention.reason and name == "ours":
                    found[name] = runtime.attention.reason
                runtime.close()
        except (MedusaError, RuntimeError, SystemExit):
            found[name] = "does not run here"
    return found


class _OneKernel(TreeAttention):
    """Our kernel for every shape, where it is right."""

    def chosen(self, bucket: Bucket) -> bool:
        super().chosen(bucket)
        return not self.reason


class _TorchKernels(TreeAttention):
    def chosen(self, bucket: Bucket) -> bool:
        return False


def _attending(model: Any, kind: type[TreeAttention]) -> DeviceRuntime:
    _, runtime = _prepared(model)
    windows = layer_windows(runtime.model.config)
    assert windows is not None
    made = DeviceRuntime(
        runtime.model, runtime.spec, runtime.capabilities, windows,
        attention=lambda model, spec: tree_attention_for(model, spec, kind),
    )  # fmt: skip
    runtime.free()
    return made


class _Partly:
    """Guesses the right token in two places of three, and others beside it."""

    name, max_depth = "partly", 4

    def __init__(self, ids: Sequence[int], vocab: int) -> None:
        self._ids, self._vocab = ids, vocab

    def propose(self, states: Sequence[DraftState], shape: Shape) -> list[Draft]:
        assert isinstance(shape, Topology)
        return [self._draft(state, shape) for state in states]

    def observe(self, row: int, kept_ids: Sequence[int], hidden: Any) -> None: ...

    def forget(self, row: int) -> None: ...

    def _draft(self, state: DraftState, shape: Topology) -> Draft:
        tokens = [state.root_id]
        for node in range(1, shape.num_nodes):
            place = len(state.ids) + int(shape.depths[node]) - 1
            right = self._ids[place] if place < len(self._ids) else 0
            rank = int(shape.ranks[node])
            tokens.append(right if rank == place % 3 else (right + 1 + rank) % self._vocab)
        return Draft(shape, np.array(tokens), np.full(shape.num_nodes, -1.0, np.float32))


def _exactness(options: argparse.Namespace, device: Any) -> dict[str, Any]:
    """Greedy answers in float32: plain, by trees, and transformers' own."""
    model = _model(options, device, options.exact_layers, "float32")
    _, runtime = _prepared(model)
    prompt = np.random.default_rng(2).integers(2, options.vocab, 32).tolist()
    params = SamplingParams(max_tokens=options.exact_tokens, ignore_eos=True)
    plain, _ = _answer(runtime, PlainController(), prompt, params)
    shapes = {"2x2x1": Topology.dense([2, 2, 1]), "4x3x2x1": Topology.dense([4, 3, 2, 1]), "chain": Topology.chain(4)}
    found: dict[str, Any] = {"layers": options.exact_layers, "tokens": len(plain), "distinct": len(set(plain))}
    for name, shape in shapes.items():
        drafter = _Partly([*prompt, *plain], options.vocab)
        controller = FixedController(make_plan(drafter, StaticPolicy(shape), shape.num_nodes))
        ids, tau = _answer(runtime, controller, prompt, params)
        found[name] = {"tau": tau} | _compared(runtime, prompt, plain, ids)
    given = torch.tensor([prompt], device=device)
    with torch.inference_mode():
        ids = model.generate(
            given, attention_mask=torch.ones_like(given), max_new_tokens=len(plain), do_sample=False, pad_token_id=0
        )
    found["generate"] = _compared(runtime, prompt, plain, ids[0, len(prompt) :].tolist())
    found["exact"] = all(part["equal"] or part["gap"] <= TIE for part in found.values() if isinstance(part, dict))
    runtime.close()
    return found


def _answer(runtime: Runtime, controller: Any, prompt: list[int], params: SamplingParams) -> tuple[list[int], float]:
    engine = Engine(runtime, _Ids(), controller)
    session = engine.start(prompt, params)
    while session.running:
        engine.step()
    if session.error is not None:
        raise session.error
    engine.finish(session)
    return list(session.output_ids), session.stats.tau


def _compared(runtime: Runtime, prompt: list[int], plain: list[int], ids: list[int]) -> dict[str, Any]:
    """Whether two answers are the same; if not, where they part and how near the two tokens' scores are there."""
    if ids == plain:
        return {"equal": True, "gap": None}
    at = next(place for place, (a, b) in enumerate(zip(ids, plain, strict=False)) if a != b)
    row = runtime.add_row()
    history = [*prompt, *plain[:at]]
    logits = runtime.prefill(row, history).logits(0).copy()
    runtime.drop_row(row)
    return {"equal": False, "at": at, "gap": score_gap(GreedyRule(), logits, history, ids[at], plain[at])}


def _show(document: dict[str, Any]) -> None:
    replayed = "called as they are: " + (document["eager"] or "no graphs here")
    if document["device"] != "cpu" and not document["eager"]:
        replayed = "replayed graphs"
    print(f"{document['device']}, torch {document['versions']['torch']}; passes are {replayed}")
    read, limit = document["bytes_read"] / 1e9, document["limit_ms"]
    print(f"copy {document['bandwidth_bytes_per_s'] / 1e9:.0f} GB/s; a plain pass reads {read:.2f} GB: {limit:.2f} ms")
    print("nodes ".ljust(12), *(f"{nodes:>7}" for nodes in document["step_ms"]))
    for name in ("wall_ms", "pass_ms"):
        print(name.ljust(12), *(f"{cell[name]:7.2f}" for cell in document["step_ms"].values()))
    print("host".ljust(12), *(f"{cell['host_share']:7.1%}" for cell in document["step_ms"].values()))
    whole = document["decoding"]
    print(f"whole engine, {HEADS} heads: {whole['step_ms']:.2f} ms a step, host {whole['host_share']:.1%}")
    print("attention:", document["attends"])
    for name, cells in document["attention_ms"].items():
        told = cells if isinstance(cells, str) else f"{cells['1']:.2f} ms at 1 node, {cells['64']:.2f} at 64"
        print(f"attention {name}: {told}")
    print("float32 exactness:", json.dumps(document["exactness"]))
    for name, bar in document["bars"].items():
        held = "held" if bar["found"] <= bar["most"] else "MISSED"
        print(f"{name}: {bar['found']:.3f} of at most {bar['most']}: {held}")
    print(f"{document['seconds']} s in all")


if __name__ == "__main__":
    main()
