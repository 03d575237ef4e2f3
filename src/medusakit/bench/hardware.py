"""`medusa bench hardware`: what the machine can do at best, and how near a forward pass comes to it.

limit of T(n) = max(stored weight bytes / read bandwidth, n * flops a token / GEMM rate of that format's arithmetic).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from medusakit.bench.circumstances import machine, versions
from medusakit.engine.measure import measure_steps
from medusakit.models.spec import ModelSpec
from medusakit.runtimes.base import Runtime
from medusakit.runtimes.onnx.session import default_threads, make_session
from medusakit.tree.topology import FloatArray

BUFFER_BYTES = 512 << 20  # far above any cache
MEASURE_S = 4.0  # for T(n) of one format
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
BYTES_PER_WEIGHT = {"f32": 4.0, "int8": 1.0, "int4": 0.5}  # without block scales, so the limit is a true floor


def run_hardware(
    load: Callable[[str], Runtime],
    *,
    formats: Sequence[str] = ("f32", "int8", "int4"),
    threads: int | None = None,
    context: int = 256,
    on_progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Probe the machine, then T(n) of every format. `load(weights)` opens the model.

    The document has the issue's keys: read_gb_s, gemm_gflop_s, step_ms, limit_ms, ratio, each by format and n.
    """
    on_progress("memory bandwidth")
    read, copy = bandwidth(threads)
    on_progress("matrix products")
    rates = {"f32": gemm_rate("f32", threads), "int8": gemm_rate("int8", threads)}
    rates["int4"] = rates["int8"]  # 4-bit weights are multiplied as 8-bit integers
    steps: dict[str, dict[str, float]] = {}
    limits: dict[str, dict[str, float]] = {}
    for weights in formats:
        on_progress(f"T(n) with {weights} weights")
        runtime = load(weights)
        measured = measure_steps(runtime, sizes=SIZES, context=context, budget_s=MEASURE_S, every_size=True).seconds
        steps[weights] = {str(n): 1e3 * seconds for n, seconds in measured.items()}
        floor = {n: limit_s(runtime.spec, weights, n, read, rates[weights]) for n in measured}
        limits[weights] = {str(n): 1e3 * seconds for n, seconds in floor.items()}
        runtime.close()
    return {
        "read_gb_s": read,
        "copy_gb_s": copy,
        "gemm_gflop_s": rates["f32"],
        "int8_gop_s": rates["int8"],
        "context": context,
        "step_ms": steps,
        "limit_ms": limits,
        "ratio": _ratios(steps, limits),
        "machine": machine(),
        "versions": versions(),
    }


def limit_s(spec: ModelSpec, weights: str, num_nodes: int, read_gb_s: float, gflop_s: float) -> float:
    """Seconds that no kernel can beat: every stored weight is read once, every product is computed once."""
    parameters = matrix_parameters(spec)
    stored = parameters * BYTES_PER_WEIGHT[weights]
    return max(stored / (read_gb_s * 1e9), num_nodes * 2 * parameters / (gflop_s * 1e9))


def matrix_parameters(spec: ModelSpec) -> int:
    """Weights that a forward pass multiplies by: all linears and the LM head (the embedding is a lookup)."""
    heads, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    layer = spec.hidden_size * (2 * heads + 2 * kv + 3 * spec.ffn_size)
    return spec.num_layers * layer + spec.hidden_size * spec.vocab_size


def bandwidth(threads: int | None = None, *, repeats: int = 6) -> tuple[float, float]:
    """(read, copy) in GB/s over all threads: best of `repeats` sums, and copies (read + write), of a large buffer."""
    session = make_session(_read_graph(), threads=threads)
    buffer = np.ones(BUFFER_BYTES // 4, dtype=np.float32).reshape(64, -1)
    read_s = _best(lambda: session.run(None, {"x": buffer}), repeats)
    copy_s = _copy_s(buffer, threads or default_threads(), repeats)
    return buffer.nbytes / read_s / 1e9, 2 * buffer.nbytes / copy_s / 1e9


def _copy_s(buffer: FloatArray, threads: int, repeats: int) -> float:
    """Seconds of one copy of the buffer, a part of it on each thread (NumPy copies without the interpreter's lock)."""
    target = np.empty_like(buffer)
    parts = list(zip(np.array_split(target, threads), np.array_split(buffer, threads), strict=True))
    with ThreadPoolExecutor(threads) as pool:
        return _best(lambda: list(pool.map(lambda part: np.copyto(*part), parts)), repeats)


def gemm_rate(arithmetic: str, threads: int | None = None, *, size: int = 1536, repeats: int = 8) -> float:
    """Billions of multiply-and-add operations (two each) a second of one large matrix product."""
    session = make_session(_gemm_graph(arithmetic, size), threads=threads)
    dtype = np.float32 if arithmetic == "f32" else np.uint8
    x = np.ones((size, size), dtype=dtype)
    return 2 * size**3 / _best(lambda: session.run(None, {"x": x}), repeats) / 1e9


def _best(call: Callable[[], object], repeats: int) -> float:
    call()
    times = []
    for _ in range(repeats):
        before = time.perf_counter()
        call()
        times.append(time.perf_counter() - before)
    return min(times)


def _read_graph() -> bytes:
    """Row sums: reads everything, writes next to nothing."""
    from onnx import TensorProto, helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, None])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [64])
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    return _model(helper.make_graph([node], "read", [x], [y], [axes]))


def _gemm_graph(arithmetic: str, size: int) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    if arithmetic == "f32":
        kinds = TensorProto.FLOAT, TensorProto.FLOAT, "MatMul"
        weight = random.standard_normal((size, size)).astype(np.float32)
    else:
        kinds = TensorProto.UINT8, TensorProto.INT32, "MatMulInteger"
        weight = random.integers(-127, 128, (size, size)).astype(np.int8)
    taken, given, operator = kinds
    x = helper.make_tensor_value_info("x", taken, [size, size])
    y = helper.make_tensor_value_info("y", given, [size, size])
    node = helper.make_node(operator, ["x", "w"], ["y"])
    return _model(helper.make_graph([node], "gemm", [x], [y], [numpy_helper.from_array(weight, "w")]))


def _model(graph: Any) -> bytes:
    from onnx import helper

    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(made.SerializeToString())


def _ratios(
    steps: Mapping[str, Mapping[str, float]], limits: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    return {
        weights: {n: taken / limits[weights][n] for n, taken in by_size.items()} for weights, by_size in steps.items()
    }
