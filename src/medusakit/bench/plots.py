"""Pictures of the bench's documents, as SVG files with real text in them. matplotlib is imported here and nowhere else.

Which pictures follows from what a document holds: speed-ups (bench offline, compare), acceptance by depth, T(n) against
its limit (bench hardware); drafters and trees are drawn in plots_drafting.py, load in
plots_serving.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusakit.bench.figures import ACCENT, INK, PALE, PANEL, ROW, SOFT, STRONG, Document, blank, style, with_axes
from medusakit.bench.plots_drafting import drafting_drawings
from medusakit.bench.plots_serving import serving_drawings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure


def write_plots(document: Document, folder: Path) -> list[Path]:
    """Draw everything the document has figures for into `folder` (made if missing); returns the files.

    Raises MissingExtraError without matplotlib, OSError for a folder that cannot be written.
    """
    drawings = dict(_drawings(document))
    if not drawings:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    with style():
        for name, draw in drawings.items():
            files.append(folder / f"{name}.svg")
            draw().savefig(files[-1], format="svg", bbox_inches="tight", metadata={"Date": None})
    return files


def plot_speedup(found: Mapping[str, Any], pair: str, caption: str = "") -> Figure:
    """One bar a category, the fastest on top, all of them last; whiskers are 95 % intervals over prompts."""
    categories = sorted(found["by_category"], key=found["by_category"].__getitem__)
    names = ["all", *categories]
    ratios = [found["ratio"], *(found["by_category"][name] for name in categories)]
    known = {"all": found["ci95"], **found.get("by_category_ci95", {})}
    spans = [known.get(name, (ratio, ratio)) for name, ratio in zip(names, ratios, strict=True)]
    figure, axes = with_axes(6.4, 1.1 + ROW * len(names))
    axes.barh(names, ratios, height=0.62, color=[STRONG, *[PALE] * len(categories)])
    axes.axvline(1.0, color=SOFT, linewidth=1, linestyle=(0, (4, 3)))
    for place, (ratio, (low, high)) in enumerate(zip(ratios, spans, strict=True)):
        axes.plot([low, high], [place, place], color=INK, linewidth=1.2, solid_capstyle="butt")
        axes.text(max(ratio, high), place, f"  {ratio:.2f}", va="center", color=INK)
    axes.set_xlim(0, 1.15 * max(*ratios, *(high for _, high in spans)))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    left, right = pair.split("/")
    axes.set_title(f"Speed of {left} over {right}{caption}", pad=12)
    axes.set_xlabel(f"tokens per second of {left} / of {right} (95 % interval over prompts)")
    return figure


def plot_acceptance(shares: Sequence[float], caption: str = "") -> Figure:
    """Share of the steps in which a drafted token of each depth was kept."""
    figure, axes = with_axes(1.8 + 0.7 * len(shares), PANEL)
    depths = [str(depth) for depth in range(1, len(shares) + 1)]
    bars = axes.bar(depths, [100 * share for share in shares], width=0.62, color=ACCENT)
    axes.bar_label(bars, fmt="%.0f %%", padding=2, color=INK)
    axes.set_ylim(0, 100)
    axes.set_xlabel("depth in the tree")
    axes.set_ylabel("steps that accept it, %")
    axes.set_title(f"Accepted by depth{caption}", pad=12)
    return figure


def plot_steps(steps: Mapping[str, Mapping[str, float]], limits: Mapping[str, Mapping[str, float]]) -> Figure:
    """T(n) of every weight format beside the limit that memory and arithmetic set, all on one scale."""
    figure = blank(PANEL * len(steps), PANEL)
    top = 1.1 * max(max(taken.values()) for taken in steps.values())
    for place, (weights, taken) in enumerate(steps.items()):
        axes = figure.add_subplot(1, len(steps), place + 1)
        sizes = [int(n) for n in taken]
        floor = [limits[weights][n] for n in taken]
        axes.fill_between(sizes, floor, color=PALE, linewidth=0, label="limit")
        axes.plot(sizes, list(taken.values()), color=ACCENT, marker="o", markersize=3.5, label="measured")
        axes.set_ylim(0, top)
        axes.set_xlim(0, None)
        axes.set_title(weights, pad=8)
        axes.set_xlabel("nodes n of a pass")
        if place == 0:
            axes.set_ylabel("T(n), ms")
            axes.legend(frameon=False, loc="upper left")
        else:
            axes.tick_params(labelleft=False)
    figure.tight_layout()
    return figure


def _drawings(document: Document) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """File names, and what draws them."""
    caption = f", {document['weights']} weights" if "weights" in document else ""
    for pair, found in document.get("speedup", {}).items():
        yield f"speedup-{pair.replace('/', '-')}", partial(plot_speedup, found, pair, caption)
    for name, mode in document.get("modes", {}).items():
        if shares := mode["accepted_by_depth"]:
            yield f"acceptance-{name}", partial(plot_acceptance, shares, caption)
    if steps := document.get("step_ms"):
        yield "steps", partial(plot_steps, steps, document["limit_ms"])
    if document.get("bench") == "serve":
        yield from serving_drawings(document)
    else:
        yield from drafting_drawings(document, caption)
