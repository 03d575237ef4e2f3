"""The doctor's findings. A check judges values it is given and says what to do; reading the machine is probe.py's."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from medusakit.cli.probe import Machine, folder_bytes, free_disk
from medusakit.config import Config, stray_variables
from medusakit.diagnosis.findings import Finding
from medusakit.errors import ArtifactError, MedusaError, ModelError

if TYPE_CHECKING:
    from medusakit.models.spec import WeightSource
    from medusakit.runtimes.onnx.inventory import BuiltGraph

REQUIRED = ("onnxruntime", "onnx", "numpy", "tokenizers", "jinja2", "gguf", "safetensors", "pydantic")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
LOW_DISK_BYTES = 2_000_000_000
GIB = 1024**3


def check_packages(versions: Mapping[str, str]) -> Finding:
    missing = [name for name in REQUIRED if name not in versions]
    if missing:
        return Finding("packages", "error", f"not installed: {', '.join(missing)}", "pip install --upgrade medusakit")
    shown = ", ".join(f"{name} {version}" for name, version in versions.items())
    return Finding("packages", "info", shown)


def check_processor(machine: Machine) -> Finding:
    features = " ".join(machine.features) or "no vector features known"
    message = f"{machine.cpu}: {features}"
    if not {"avx2", "asimd"} & set(machine.features):
        return Finding(
            "processor", "warning", message, "a processor with AVX2 or NEON: without it every format is slow"
        )
    if not {"avx512_vnni", "avx_vnni", "asimddp", "amx_int8"} & set(machine.features):
        return Finding("processor", "info", f"{message} (no int8 dot products: int8 and int4 gain less)")
    return Finding("processor", "info", message)


def check_cores(machine: Machine, threads: int | None) -> Finding:
    wanted = threads or machine.cores
    message = f"{machine.cores} usable, {wanted} threads"
    if wanted > machine.cores:
        return Finding("cores", "warning", f"{message}: threads wait for each other", f"--threads {machine.cores}")
    if machine.cores == 1:
        return Finding("cores", "warning", message, "two cores or more: one core leaves little room for a tree")
    return Finding("cores", "info", message)


def check_threads(env: Mapping[str, str], cores: int) -> Finding:
    """Variables that give other libraries' thread pools more threads than there are cores."""
    given = {name: env[name] for name in THREAD_VARIABLES if env.get(name)}
    message = ", ".join(f"{name}={value}" for name, value in given.items()) or "no thread variable is set"
    if any(value.isdigit() and int(value) > cores for value in given.values()):
        return Finding("thread-variables", "warning", message, f"unset them, or set them to at most {cores}")
    return Finding("thread-variables", "info", message)


def check_memory(machine: Machine, needed_bytes: int) -> Finding:
    """needed_bytes: stored weights of the configured model, 0 if it is not there."""
    message = f"{machine.memory_bytes / GIB:.1f} GiB available"
    if needed_bytes:
        message += f", the model's files hold {needed_bytes / GIB:.2f} GiB"
    if machine.memory_bytes and machine.memory_bytes < needed_bytes:
        return Finding("memory", "error", message, "a smaller model, or --weights int4")
    return Finding("memory", "info", message)


def check_cache(folder: Path) -> Iterator[Finding]:
    """Writable, how large, and with room. A probe file is made and removed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        remedy = "set MEDUSA_HOME to a folder that can be written"
        yield Finding("cache", "error", f"{folder} cannot be written: {error.strerror}", remedy)
        return
    parts = {part: folder_bytes(folder / part) for part in ("models", "graphs")}
    shown = ", ".join(f"{part} {size / GIB:.2f} GiB" for part, size in parts.items())
    yield Finding("cache", "info", f"{folder} can be written; it holds {folder_bytes(folder) / GIB:.2f} GiB: {shown}")
    free = free_disk(folder)
    message = f"{free / GIB:.1f} GiB free in {folder}"
    if free < LOW_DISK_BYTES:
        yield Finding("disk", "warning", message, "free some space, or set MEDUSA_HOME to another disk")
    else:
        yield Finding("disk", "info", message)


def check_graphs(graphs: Sequence[BuiltGraph]) -> Finding:
    """What built graphs take, and whether some are of no use any more."""
    total = sum(graph.num_bytes for graph in graphs)
    message = f"{total / 1e6:,.0f} MB of built graphs ({len(graphs)})"
    old = [graph for graph in graphs if not graph.current]
    if old:
        useless = sum(graph.num_bytes for graph in old)
        message += f"; {useless / 1e6:,.0f} MB ({len(old)}) are another version's, and this one never opens them"
        return Finding("graphs", "warning", message, "medusa models clean")
    return Finding("graphs", "info", f"{message}, none of another version")


def check_variables(env: Mapping[str, str]) -> Finding:
    stray = stray_variables(env)
    if stray:
        return Finding(
            "variables", "warning", f"without meaning: {', '.join(stray)}", "medusa config show lists the known"
        )
    return Finding("variables", "info", "every MEDUSA_* variable is known")


def check_model(config: Config) -> Iterator[Finding]:
    """The model can be found and read, and heads that fit it are there."""
    from medusakit.models.resolve import open_weights, resolve

    try:
        resolved = resolve(config.model, offline=True)
        source = open_weights(resolved)
    except ModelError as error:
        yield Finding("model", "warning", error.message, error.hint or "medusa models pull smollm2")
        return
    spec = source.spec
    yield Finding("model", "info", f"{config.model}: {spec.family}, {spec.num_layers} layers, {resolved.path}")
    yield _heads(config, source, resolved.path)


def _heads(config: Config, source: WeightSource, path: Path) -> Finding:
    from medusakit.artifact.find import find_heads
    from medusakit.drafters.registry import WITHOUT_HEADS

    if config.drafter in WITHOUT_HEADS:
        return Finding("heads", "info", f"the drafter {config.drafter} needs none")
    try:
        artifact = find_heads(config.heads, source, model_path=path, drafter=config.drafter)
    except ArtifactError as error:
        return Finding("heads", "error", error.message, error.hint or "medusa run --heads none")
    if artifact is None:
        remedy = f"medusa train all -m {config.model} --out ./heads"
        how = "decoding is plain" if config.heads == "none" else "it drafts from prompt and answer"
        return Finding("heads", "warning", f"no heads fit this model: {how}", remedy)
    drafter = artifact.manifest.drafter
    return Finding("heads", "info", f"{drafter.family}, depth {drafter.depth}, {artifact.path}")


def weight_bytes(config: Config) -> int:
    """Size of the configured model's files, 0 if it is not there."""
    from medusakit.models.resolve import resolve

    try:
        path = resolve(config.model, offline=True).path
    except MedusaError:
        return 0
    files = [path] if path.is_file() else [file for file in path.glob("*.safetensors")]
    return sum(os.path.getsize(file) for file in files)
