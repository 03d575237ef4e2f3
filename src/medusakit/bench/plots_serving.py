"""Pictures of `bench serve`: throughput, times and the ratio to plain decoding against concurrency."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from medusakit.bench.figures import ACCENT, INK, PALE, PANEL, SOFT, Document, with_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = Sequence[Mapping[str, Any]]
TIMES = {"ttft_ms": "Time to the first token", "tpot_ms": "Time per token after the first"}


def serving_drawings(document: Document) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """File names, and what draws them."""
    sides = curves(document)
    yield "serve-throughput", partial(plot_throughput, sides)
    for name in TIMES:
        yield f"serve-{name.removesuffix('_ms')}", partial(plot_times, sides, name)
    if "ratio" in document["points"][0]:
        yield "serve-ratio", partial(plot_ratio, document["points"])


def curves(document: Document) -> dict[str, Points]:
    """Name of each way to decode, and its points."""
    points = document["points"]
    if "plain" not in points[0]:
        return {"server": points}
    return {"speculation": points, "plain": [found["plain"] for found in points]}


def plot_throughput(sides: Mapping[str, Points]) -> Figure:
    """Tokens per second of all requests together."""
    figure, axes = _over_concurrency(sides)
    for (name, points), colour in zip(sides.items(), (ACCENT, SOFT), strict=False):
        axes.plot(_at(points), [found["tokens_per_s"] for found in points], color=colour, marker="o", label=name)
    axes.set_ylim(0, None)
    axes.set_ylabel("tokens per second")
    axes.set_title("Throughput", pad=12)
    axes.legend(frameon=False)
    return figure


def plot_times(sides: Mapping[str, Points], name: str) -> Figure:
    """name: a key of TIMES. The median as a line, p95 dashed."""
    figure, axes = _over_concurrency(sides)
    for (side, points), colour in zip(sides.items(), (ACCENT, SOFT), strict=False):
        for share, line in (("p50", "-"), ("p95", (0, (4, 3)))):
            known = [found for found in points if found[name][share] is not None]
            values = [found[name][share] for found in known]
            axes.plot(_at(known), values, color=colour, linestyle=line, marker="o", label=f"{side}, {share}")
    axes.set_ylim(0, None)
    axes.set_ylabel("ms")
    axes.set_title(TIMES[name], pad=12)
    axes.legend(frameon=False)
    return figure


def plot_ratio(points: Points) -> Figure:
    """Throughput with speculation over plain decoding's, measured (95 % interval over rounds) and predicted."""
    figure, axes = _over_concurrency({"": points})
    axes.axhline(1.0, color=SOFT, linewidth=1, linestyle=(0, (4, 3)))
    spans = [found for found in points if found.get("ratio_ci95")]
    low, high = ([found["ratio_ci95"][end] for found in spans] for end in (0, 1))
    axes.fill_between(_at(spans), low, high, color=PALE, linewidth=0)
    axes.plot(_at(points), [found["ratio"] for found in points], color=ACCENT, marker="o", label="measured")
    told = [found for found in points if found.get("predicted")]
    if told:
        values = [found["predicted"]["ratio"] for found in told]
        axes.plot(_at(told), values, color=INK, linestyle=(0, (1, 2)), marker="s", label="predicted: tau T / T(tree)")
    axes.set_ylim(0, None)
    axes.set_ylabel("tokens per second, over plain")
    axes.set_title("What speculation gives under load", pad=12)
    axes.legend(frameon=False)
    return figure


def _over_concurrency(sides: Mapping[str, Points]) -> tuple[Figure, Axes]:
    """Axes whose ticks are the concurrencies that were measured, each twice as far as its half."""
    figure, axes = with_axes(1.6 * PANEL, PANEL)
    axes.set_xscale("log", base=2)
    ticks = sorted({at for points in sides.values() for at in _at(points)})
    axes.set_xticks(ticks, [str(at) for at in ticks])
    axes.minorticks_off()
    axes.set_xlabel("requests at once")
    return figure, axes


def _at(points: Points) -> list[int]:
    return [found["concurrency"] for found in points]
