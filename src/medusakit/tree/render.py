"""Pictures of a token tree: lines for a terminal, and SVG. Strings in, strings out; nothing is printed here.

Both show per node its rank path, the share of steps that accept it, and, where a vocabulary is at hand, its token.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from medusakit.tree.topology import Topology

BAR_WIDTH = 12
BLOCKS = " ▏▎▍▌▋▊▉█"

# SVG geometry, in pixels
COLUMN, LEVEL, RADIUS, MARGIN = 46, 84, 17, 30
# from cold to warm: acceptance 0 to 1, readable on white; text turns white on the darker half
HEAT = ((239, 243, 255), (189, 215, 231), (107, 174, 214), (49, 130, 189), (8, 81, 156))


def summary(topology: Topology, acceptance: Sequence[float] | None = None) -> str:
    """One line: size, depth, leaves and, with acceptance, the tokens per step that are expected."""
    leaves = sum(not children for children in topology.children)
    rows, tips = "row" if topology.num_nodes == 1 else "rows", "leaf" if leaves == 1 else "leaves"
    text = f"{topology.num_nodes} {rows} · depth {topology.max_depth} · {leaves} {tips}"
    return text if acceptance is None else f"{text} · expected tau {1 + sum(acceptance):.2f}"


def draw(topology: Topology, acceptance: Sequence[float] | None = None, labels: Sequence[str] | None = None) -> str:
    """The tree as lines of text, root first, children under their parent in the order of the tree.

    acceptance  per drafted node (node 1 first), 0 to 1
    labels      per node, root included (e.g. tokens); instead of the rank alone
    """
    _check(topology, acceptance, labels)
    stems = [(0, labels[0] if labels else "root")]
    pending = _below(topology, 0, "")
    while pending:
        node, stem, indent = pending.pop()
        name = labels[node] if labels else str(int(topology.ranks[node]))
        stems.append((node, f"{stem}{name}"))
        pending.extend(_below(topology, node, indent))
    width = max(len(text) for _, text in stems)
    lines = [_line(topology, node, text.ljust(width), acceptance) for node, text in stems]
    return "\n".join([*lines, "", summary(topology, acceptance)])


def _below(topology: Topology, node: int, indent: str) -> list[tuple[int, str, str]]:
    """(child, its stem, indent of what hangs under it), last child first: they are popped from the end."""
    children = topology.children[node]
    last = children[-1] if children else -1
    found = [
        (child, f"{indent}{'└─ ' if child == last else '├─ '}", f"{indent}{'   ' if child == last else '│  '}")
        for child in children
    ]
    return found[::-1]


def _line(topology: Topology, node: int, stem: str, acceptance: Sequence[float] | None) -> str:
    if node == 0:
        return stem.rstrip() if acceptance is None else f"{stem}  {_bar(1.0)} 100.0%"
    path = "(" + ",".join(map(str, topology.rank_paths[node])) + ")"
    if acceptance is None:
        return f"{stem}  {path}"
    share = acceptance[node - 1]
    return f"{stem}  {_bar(share)} {share:6.1%}  {path}"


def _bar(share: float) -> str:
    eighths = round(min(1.0, max(0.0, share)) * BAR_WIDTH * 8)
    return ("█" * (eighths // 8) + BLOCKS[eighths % 8].strip()).ljust(BAR_WIDTH)


def svg(
    topology: Topology,
    acceptance: Sequence[float] | None = None,
    labels: Sequence[str] | None = None,
    *,
    title: str = "Token tree",
) -> str:
    """The tree as a standalone SVG document: the root on top, warmer nodes are accepted more often.

    Arguments as in `draw`. Hovering a node shows its path and its share.
    """
    _check(topology, acceptance, labels)
    columns = _columns(topology)
    width = int(max(columns) * COLUMN + 2 * MARGIN + 2 * RADIUS)
    width = max(width, 360)
    height = topology.max_depth * LEVEL + 2 * (MARGIN + RADIUS) + 64
    points = [
        (MARGIN + RADIUS + column * COLUMN, 64 + MARGIN + RADIUS + int(depth) * LEVEL)
        for column, depth in zip(columns, topology.depths, strict=True)
    ]
    shift = (width - (min(x for x, _ in points) + max(x for x, _ in points))) / 2
    points = [(x + shift, y) for x, y in points]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="ui-sans-serif, system-ui, sans-serif" role="img">',
        f"<title>{escape(title)}</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="{MARGIN}" y="34" font-size="18" font-weight="600" fill="#1a1a1a">{escape(title)}</text>',
        f'<text x="{MARGIN}" y="56" font-size="12" fill="#5c5c5c">{escape(summary(topology, acceptance))}</text>',
        *(_edge(topology, node, points, acceptance) for node in range(1, topology.num_nodes)),
        *(_node(topology, node, points[node], acceptance, labels) for node in range(topology.num_nodes)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _columns(topology: Topology) -> list[float]:
    """Horizontal places: leaves side by side, a parent in the middle of its first and last child."""
    columns = [0.0] * topology.num_nodes
    next_leaf = 0
    stack = [(0, False)]
    while stack:
        node, children_done = stack.pop()
        children = topology.children[node]
        if not children:
            columns[node] = float(next_leaf)
            next_leaf += 1
        elif children_done:
            columns[node] = (columns[children[0]] + columns[children[-1]]) / 2
        else:
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(children))
    return columns


def _edge(
    topology: Topology, node: int, points: Sequence[tuple[float, float]], acceptance: Sequence[float] | None
) -> str:
    (x0, y0), (x1, y1) = points[int(topology.parents[node])], points[node]
    middle = (y0 + y1) / 2
    thickness = 1.5 if acceptance is None else 1.0 + 5.0 * acceptance[node - 1]
    curve = f"M{x0:.1f} {y0:.1f} C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
    return f'<path d="{curve}" fill="none" stroke="#b8c4d0" stroke-width="{thickness:.2f}"/>'


def _node(
    topology: Topology,
    node: int,
    point: tuple[float, float],
    acceptance: Sequence[float] | None,
    labels: Sequence[str] | None,
) -> str:
    x, y = point
    share = 1.0 if node == 0 else None if acceptance is None else acceptance[node - 1]
    fill, ink = _heat(0.5 if share is None else share)
    name = labels[node] if labels else "root" if node == 0 else str(int(topology.ranks[node]))
    path = ", ".join(map(str, topology.rank_paths[node])) or "root"
    told = f"path ({path})" if share is None else f"path ({path}): accepted in {share:.1%} of steps"
    below = ""
    if share is not None and node > 0:
        place = f'x="{x:.1f}" y="{y + RADIUS + 13}" font-size="10" fill="#5c5c5c" text-anchor="middle"'
        below = f"<text {place}>{share:.1%}</text>"
    return (
        f'<g><title>{escape(told)}</title><circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}" fill="{fill}" '
        f'stroke="#5b7a99" stroke-width="1"/><text x="{x:.1f}" y="{y + 4:.1f}" font-size="11" fill="{ink}" '
        f'text-anchor="middle">{escape(name[:6])}</text>{below}</g>'
    )


def _heat(share: float) -> tuple[str, str]:
    """(fill, text colour). The square root spreads the small shares, of which a tree has many."""
    place = min(1.0, max(0.0, share)) ** 0.5 * (len(HEAT) - 1)
    low = min(int(place), len(HEAT) - 2)
    red, green, blue = (round(a + (b - a) * (place - low)) for a, b in zip(HEAT[low], HEAT[low + 1], strict=True))
    return f"#{red:02x}{green:02x}{blue:02x}", "#ffffff" if place > 2.2 else "#1a1a1a"


def _check(topology: Topology, acceptance: Sequence[float] | None, labels: Sequence[str] | None) -> None:
    if acceptance is not None and len(acceptance) != topology.num_nodes - 1:
        raise ValueError(f"{len(acceptance)} shares for a tree of {topology.num_nodes - 1} drafted nodes")
    if labels is not None and len(labels) != topology.num_nodes:
        raise ValueError(f"{len(labels)} labels for a tree of {topology.num_nodes} nodes")
