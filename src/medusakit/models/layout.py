"""Which tensors a spec needs, with which shapes, and where a file keeps them.

A naming scheme is a table from our short names ("q", "final_norm", ...) to the file's names. Two fused tensors of phi3
hold several of ours as row ranges: qkv = q, k, v and gate_up = gate, up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from medusakit.errors import FETCH_AGAIN, ModelError
from medusakit.models.spec import ModelSpec, StoredTensor

Shape = tuple[int, ...]
_MAX_LISTED = 8


@dataclass(frozen=True, slots=True)
class Location:
    """Rows `start` to `stop` of the stored tensor `stored`; the whole of it when `stop` is None."""

    stored: str
    start: int = 0
    stop: int | None = None

    def take(self, tensor: StoredTensor, name: str) -> StoredTensor:
        """Our tensor out of the stored one: a view, also of block formats, whose blocks never cross rows."""
        if self.stop is None:
            return replace(tensor, name=name)
        rows = self.stop - self.start
        raw = tensor.raw[self.start : self.stop]
        return StoredTensor(name, tensor.format, (rows, *tensor.shape[1:]), raw)


def split_name(name: str) -> tuple[str, str]:
    """("3", "q") of "layers.3.q", ("", "embed") of "embed"."""
    parts = name.split(".")
    return (parts[1], parts[2]) if len(parts) == 3 else ("", name)


def tensor_shapes(spec: ModelSpec) -> dict[str, Shape]:
    """Every tensor of the model by our name, in the order of a forward pass."""
    shapes: dict[str, Shape] = {"embed": (spec.vocab_size, spec.hidden_size)}
    layer = _layer_shapes(spec)
    for index in range(spec.num_layers):
        shapes |= {f"layers.{index}.{key}": shape for key, shape in layer.items()}
    shapes["final_norm"] = (spec.hidden_size,)
    if not spec.tied_embeddings:
        shapes["lm_head"] = (spec.vocab_size, spec.hidden_size)
    return shapes


def _layer_shapes(spec: ModelSpec) -> dict[str, Shape]:
    hidden, ffn = spec.hidden_size, spec.ffn_size
    q, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    shapes: dict[str, Shape] = {"attn_norm": (hidden,), "q": (q, hidden), "k": (kv, hidden), "v": (kv, hidden)}
    if spec.qkv_bias:
        shapes |= {"q_bias": (q,), "k_bias": (kv,), "v_bias": (kv,)}
    if spec.qk_norm:
        shapes |= {"q_norm": (spec.head_dim,), "k_norm": (spec.head_dim,)}
    shapes["o"] = (hidden, q)
    if spec.sandwich_norms:
        shapes["post_attn_norm"] = (hidden,)
    shapes |= {"ffn_norm": (hidden,), "gate": (ffn, hidden), "up": (ffn, hidden), "down": (hidden, ffn)}
    if spec.sandwich_norms:
        shapes["post_ffn_norm"] = (hidden,)
    return shapes


def locate(spec: ModelSpec, scheme: Mapping[str, str]) -> dict[str, Location]:
    """Where each of our tensors lies. `scheme` maps short names to stored names, "{i}" standing for the layer."""
    fused = _fused_rows(spec) if spec.family == "phi3" else {}
    places: dict[str, Location] = {}
    for name in tensor_shapes(spec):
        index, key = split_name(name)
        whole, start, stop = fused.get(key, (key, 0, None))
        places[name] = Location(scheme[whole].replace("{i}", index), start, stop)
    return places


def _fused_rows(spec: ModelSpec) -> dict[str, tuple[str, int, int | None]]:
    """key -> (fused key, first row, end row)"""
    q, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    return {
        "q": ("qkv", 0, q),
        "k": ("qkv", q, q + kv),
        "v": ("qkv", q + kv, q + 2 * kv),
        "gate": ("gate_up", 0, spec.ffn_size),
        "up": ("gate_up", spec.ffn_size, 2 * spec.ffn_size),
    }


def stored_shapes(spec: ModelSpec, places: Mapping[str, Location]) -> dict[str, Shape]:
    """Shape that each stored tensor must have."""
    shapes: dict[str, Shape] = {}
    for name, shape in tensor_shapes(spec).items():
        place = places[name]
        rows = max(place.stop or shape[0], shapes.get(place.stored, (0,))[0])
        shapes[place.stored] = (rows, *shape[1:])
    return shapes


def check_tensors(
    spec: ModelSpec, places: Mapping[str, Location], found: Mapping[str, Shape], *, ignored: Iterable[str], where: str
) -> None:
    """Raise ModelError with the differences unless `found` is exactly what the spec needs (plus `ignored`)."""
    wanted = stored_shapes(spec, places)
    problems = [
        *_listing("missing", [f"{name} {list(wanted[name])}" for name in wanted if name not in found]),
        *_listing("unexpected", [name for name in sorted(set(found) - set(wanted) - set(ignored))]),
        *_listing(
            "wrong shape",
            [
                f"{name} is {list(found[name])}, expected {list(shape)}"
                for name, shape in wanted.items()
                if name in found and found[name] != shape
            ],
        ),
    ]
    if problems:
        lines = "\n  ".join(problems)
        raise ModelError(
            f"{where} does not hold the tensors of a {spec.family} model:\n  {lines}",
            hint=FETCH_AGAIN,
        )


def _listing(title: str, items: list[str]) -> list[str]:
    if not items:
        return []
    more = [f"... and {len(items) - _MAX_LISTED} more"] if len(items) > _MAX_LISTED else []
    return [f"{title} ({len(items)}):", *(f"  {item}" for item in items[:_MAX_LISTED]), *more]
