"""Pictures of `bench grid` and `bench drafters`: trees against the time of their pass, drafters, ever worse heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from medusakit.bench.figures import ACCENT, INK, PALE, PANEL, ROW, SOFT, STRONG, Document, blank, with_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = Mapping[str, Any]
GAINS = {"tau": "tau, tokens a step", "rho_eff": "rho_eff"}
KINDS = {
    "dense": (PALE, "dense D x B"),
    "calibrated": (STRONG, "calibrated, by nodes"),
    "dynamic": (ACCENT, "grown at every step, by nodes"),
    "plain": (SOFT, "plain"),
}


def drafting_drawings(document: Document, caption: str) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """File names, and what draws them."""
    if points := document.get("points"):
        fronts = {"tau": document["pareto"], "rho_eff": document["pareto_rho_eff"]}
        yield "pareto", partial(plot_fronts, points, fronts, caption)
    if drafters := document.get("drafters"):
        yield "drafters", partial(plot_drafters, drafters, caption)
    if degraded := document.get("degraded"):
        yield "degraded", partial(plot_degraded, degraded, caption)


def plot_fronts(points: Sequence[Point], fronts: Mapping[str, Sequence[Point]], caption: str = "") -> Figure:
    """Every tree: what it gives against what its verify pass takes, one panel a gain, with the Pareto front.

    Trees of one kind that differ in their nodes alone are named only where they are on the front.
    """
    figure = blank(1.6 * PANEL * len(fronts), 1.4 * PANEL)
    for place, (gain, front) in enumerate(fronts.items()):
        axes = figure.add_subplot(1, len(fronts), place + 1)
        axes.step(*_columns(front, gain), where="post", color=ACCENT, linewidth=1.2, label="Pareto front")
        for kind, (colour, label) in KINDS.items():
            xs, ys = _columns([point for point in points if point["kind"] == kind], gain)
            axes.scatter(xs, ys, s=28, color=colour, edgecolors=INK, linewidths=0.5, label=label, zorder=3)
        names = {point["name"] for point in front}
        for point in points:
            if point["name"] in names or point["kind"] in ("dense", "plain"):
                _label(axes, point, gain, on_front=point["name"] in names)
        _log_scale(axes)
        axes.set_xlabel("T_verify, ms a pass (logarithmic)")
        axes.set_title(f"{GAINS[gain]}{caption}", pad=10)
        if place == 0:
            axes.legend(frameon=False, loc="lower right")
    figure.tight_layout()
    return figure


def plot_drafters(drafters: Mapping[str, Point], caption: str = "") -> Figure:
    """Speed over plain of every drafter, the fastest on top, with its interval over prompts and its tau."""
    ranked = sorted(drafters.items(), key=lambda item: float(item[1]["speedup"]))
    figure, axes = with_axes(6.4, 1.1 + ROW * len(ranked))
    axes.barh([name for name, _ in ranked], [row["speedup"] for _, row in ranked], height=0.62, color=STRONG)
    axes.axvline(1.0, color=SOFT, linewidth=1, linestyle=(0, (4, 3)))
    for place, (_, row) in enumerate(ranked):
        low, high = row["ci95"]
        axes.plot([low, high], [place, place], color=INK, linewidth=1.2, solid_capstyle="butt")
        text = f"  {row['speedup']:.2f}, tau {row['tau']:.2f}"
        axes.text(max(row["speedup"], high), place, text, va="center", color=INK)
    axes.set_xlim(0, 1.35 * max(1.0, *(max(row["speedup"], row["ci95"][1]) for _, row in ranked)))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_title(f"Drafters{caption}", pad=12)
    axes.set_xlabel("tokens per second over plain decoding's (95 % interval over prompts)")
    return figure


def plot_degraded(degraded: Sequence[Point], caption: str = "") -> Figure:
    """Speed over plain against the quality of the drafts, the same heads with more and more noise."""
    ordered = sorted(degraded, key=lambda point: float(point["rho"]))
    figure, axes = with_axes(1.8 * PANEL, 1.3 * PANEL)
    rhos, speeds = [point["rho"] for point in ordered], [point["speedup"] for point in ordered]
    low, high = ([point["ci95"][side] for point in ordered] for side in (0, 1))
    axes.fill_between(rhos, low, high, color=PALE, linewidth=0)
    axes.plot(rhos, speeds, color=ACCENT, marker="o", markersize=4)
    axes.axhline(1.0, color=SOFT, linewidth=1, linestyle=(0, (4, 3)))
    for point in ordered:
        text = f"noise {point['noise']:g}, tau {point['tau']:.2f}"
        place = (point["rho"], point["speedup"])
        axes.annotate(text, place, xytext=(4, -12), textcoords="offset points", color=INK, fontsize=8)
    axes.set_ylim(0, 1.1 * max(1.0, *high))
    axes.set_xlabel("rho: accepted depths / offered depths")
    axes.set_ylabel("speed over plain")
    axes.set_title(f"Speed against draft quality{caption}", pad=12)
    return figure


def _log_scale(axes: Axes) -> None:
    """Milliseconds as plain numbers at 1, 2 and 5 times powers of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _columns(points: Sequence[Point], gain: str) -> tuple[list[float], list[float]]:
    return [point["verify_ms"] for point in points], [point[gain] for point in points]


def _label(axes: Axes, point: Point, gain: str, *, on_front: bool) -> None:
    colour = INK if on_front else SOFT
    place = (point["verify_ms"], point[gain])
    name = str(point["name"]).rpartition("-")[2]
    axes.annotate(name, place, xytext=(4, 4), textcoords="offset points", color=colour, fontsize=7)
