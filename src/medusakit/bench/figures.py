"""Paper and ink of the bench's pictures: colours, style, empty figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from medusakit.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Document = Mapping[str, Any]
INK, SOFT, ACCENT, STRONG, PALE = "#24292f", "#8c959f", "#2f6f4f", "#8fc0a6", "#d8e6de"
STYLE = {
    "svg.fonttype": "none",  # text stays text: searchable, and shown in the reader's font
    "svg.hashsalt": "medusakit",  # the same document gives the same file
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": SOFT,
    "ytick.color": INK,
    "axes.edgecolor": SOFT,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
}
ROW, PANEL = 0.36, 3.2  # inches: a bar's row, a panel's side


@contextmanager
def style() -> Iterator[None]:
    """The style of every picture, inside the block. Raises MissingExtraError without matplotlib."""
    try:
        from matplotlib import rc_context
    except ImportError as cause:
        raise MissingExtraError(
            "pictures need matplotlib, which is not installed", hint="pip install 'medusakit[bench]'"
        ) from cause
    with rc_context(STYLE):
        yield


def blank(width: float, height: float) -> Figure:
    """An empty figure of this size in inches."""
    from matplotlib.figure import Figure as MatplotlibFigure

    return MatplotlibFigure(figsize=(width, height))


def with_axes(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of this size in inches with one pair of axes."""
    figure = blank(width, height)
    return figure, figure.add_subplot()
