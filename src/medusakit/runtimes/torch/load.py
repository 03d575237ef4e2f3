"""Open a model with transformers and give it a runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from medusakit.errors import MissingExtraError, ModelError, UsageError
from medusakit.models.resolve import ResolvedModel, open_weights
from medusakit.models.spec import WeightSource
from medusakit.runtimes.base import Capabilities, Runtime

SPREADS = ("auto", "balanced", "balanced_low_0", "sequential")  # of a model over devices, as transformers names them
WEIGHTS = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}


@dataclass(frozen=True, slots=True)
class TorchParts:
    source: WeightSource
    runtime: Runtime


def load_torch(
    resolved: ResolvedModel,
    *,
    weights: str = "auto",
    threads: int | None = None,
    max_rows: int = 1,
    max_context: int | None = None,
    device_map: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> TorchParts:
    """Any causal language model that transformers reads, quantised ones included.

    weights     f32, bf16, f16, or auto: float32 on the CPU, what the files store where `device_map` is given
    device_map  as transformers takes it: "auto", "cuda:0"
    options     further arguments of `from_pretrained`
    Raises MissingExtraError without torch or transformers, ModelError with transformers' own reason.
    """
    model = pretrained(resolved, weights=weights, threads=threads, device_map=device_map, options=options)
    if device_map is None:
        from medusakit.runtimes.torch.pack import pack_linears

        pack_linears(model)
    if resolved.kind == "gguf":
        return torch_parts(model, open_weights(resolved), max_rows=max_rows, max_context=max_context)
    return torch_parts(model, folder=resolved.path, max_rows=max_rows, max_context=max_context)


def pretrained(
    resolved: ResolvedModel,
    *,
    weights: str = "auto",
    threads: int | None = None,
    device_map: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """The transformers model, for inference; see `load_torch`."""
    try:
        import torch
        from transformers import AutoModelForCausalLM
    except ImportError as cause:
        raise MissingExtraError(
            f"runtime torch needs {cause.name}, which is not installed", hint="pip install 'medusakit[torch]'"
        ) from cause
    if weights not in ("auto", *WEIGHTS):
        raise UsageError(
            f"weights {weights!r} are not a format of the torch runtime",
            hint=f"one of: auto, {', '.join(WEIGHTS)}; files that are quantised already stay so",
        )
    if device_map is not None:
        _check_device_map(device_map)
    if threads:
        torch.set_num_threads(threads)
    chosen = ("auto" if device_map else "f32") if weights == "auto" else weights
    arguments: dict[str, Any] = {"dtype": WEIGHTS.get(chosen, "auto")}
    if device_map:
        arguments["device_map"] = device_map
    folder = resolved.path
    if resolved.kind == "gguf":
        folder, arguments["gguf_file"] = resolved.path.parent, resolved.path.name
    try:
        with _without_bars():
            return AutoModelForCausalLM.from_pretrained(folder, **arguments, **(options or {})).eval()
    except Exception as error:  # it has no errors of its own: what a file or a missing library makes it raise is any
        raise ModelError(
            f"transformers cannot load {resolved.path}: {error}", hint="medusa models list   names some that run"
        ) from error


def _check_device_map(device_map: str) -> None:
    """Raises UsageError for one that is no name of a spread and no device, or a CUDA device that is not there."""
    import torch

    try:
        kind = "" if device_map in SPREADS else torch.device(device_map).type
    except RuntimeError:
        raise UsageError(
            f"device map {device_map!r} is none that transformers knows",
            hint=f"--device-map auto   or {', '.join(SPREADS[1:])}, or a device: cpu, cuda:0",
        ) from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            f"device map {device_map!r} asks for a CUDA device, but torch {torch.__version__} sees none",
            hint="without --device-map   it runs on the CPU; medusa doctor --runtime torch   tells what torch sees",
        )


@contextmanager
def _without_bars() -> Iterator[None]:
    """transformers' progress bars would stand in what a command prints. Its GGUF reader's one has no switch, so that it
    is made without effect where it is named."""
    from transformers import modeling_gguf_pytorch_utils as reader
    from transformers.utils import logging

    shown, bar = logging.is_progress_bar_enabled(), getattr(reader, "tqdm", None)
    logging.disable_progress_bar()
    if bar is not None:
        reader.tqdm = partial(bar, disable=True)
    try:
        yield
    finally:
        if bar is not None:
            reader.tqdm = bar
        if shown:
            logging.enable_progress_bar()


def torch_parts(
    model: Any,
    source: WeightSource | None = None,
    *,
    folder: Path | None = None,
    max_rows: int = 1,
    max_context: int | None = None,
    prepared: bool | None = None,
) -> TorchParts:
    """Source and runtime of a transformers model that is loaded, which stays usable by others.

    source  the file that it was made from, if another reader knows it; folder: that of its files
    prepared  passes of fixed shapes (None: where the whole model lies on one CUDA device)
    """
    import torch

    from medusakit.runtimes.torch.device.facts import device_name
    from medusakit.runtimes.torch.model import CausalModel
    from medusakit.runtimes.torch.probe import fitting_runtime
    from medusakit.runtimes.torch.source import TorchSource

    causal = CausalModel(model)
    own = TorchSource(causal, folder)
    limit = own.spec.context_length
    if max_context is not None and not 0 < max_context <= limit:
        raise UsageError(
            f"max_context {max_context} is outside 1 to {limit}, the model's own limit", hint=f"--max-context {limit}"
        )
    names = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
    exact = "bitwise-ties" if causal.dtype in (torch.float32, torch.float64) else "numerical-ties"
    # a GGUF file is read by a quantizer of transformers that leaves float32 behind
    quantised = source is None and getattr(model, "hf_quantizer", None) is not None
    several = len(set((getattr(model, "hf_device_map", None) or {}).values())) > 1
    capabilities = Capabilities(
        "quantised" if quantised else names.get(causal.dtype, str(causal.dtype)),
        "numerical-ties" if quantised else exact,
        max_rows,
        max_context or limit,
        backend="torch",
        device=device_name(causal.device),
        eager="its layers lie on several devices" if several and causal.device.type == "cuda" else "",
    )
    if prepared is None:
        prepared = causal.device.type == "cuda" and not several
    return TorchParts(source or own, fitting_runtime(causal, own.spec, capabilities, prepared=prepared))
