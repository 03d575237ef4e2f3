"""Drawings of trees: what they say, and that an SVG is one."""

import xml.etree.ElementTree as xml

import pytest

from medusakit.tree.render import draw, summary, svg
from medusakit.tree.topology import PLAIN, Topology

SHAPE = Topology.from_rank_paths([(0,), (1,), (0, 0), (0, 1)])
SHARES = (0.5, 0.25, 0.125, 0.0)


def test_terminal_drawing():
    assert draw(SHAPE, SHARES).splitlines() == [
        "root     ████████████ 100.0%",
        "├─ 0     ██████        50.0%  (0)",
        "│  ├─ 0  █▌            12.5%  (0,0)",
        "│  └─ 1                 0.0%  (0,1)",
        "└─ 1     ███           25.0%  (1)",
        "",
        "5 rows · depth 2 · 3 leaves · expected tau 1.88",
    ]


def test_labels_stand_in_for_ranks():
    drawn = draw(SHAPE, labels=["The", " cat", " dog", " sat", " ran"])
    assert drawn.splitlines()[:5] == [
        "The",
        "├─  cat     (0)",
        "│  ├─  sat  (0,0)",
        "│  └─  ran  (0,1)",
        "└─  dog     (1)",
    ]


def test_plain_decoding_is_drawn_too():
    assert summary(PLAIN) == "1 row · depth 0 · 1 leaf"
    assert draw(PLAIN).splitlines()[0] == "root"
    xml.fromstring(svg(PLAIN))


def test_svg_has_every_node_with_its_share_and_heat():
    root = xml.fromstring(svg(SHAPE, SHARES, title="a < b"))
    space = "{http://www.w3.org/2000/svg}"
    told = [group.find(f"{space}title").text for group in root.iter(f"{space}g")]
    assert told[1:3] == ["path (0): accepted in 50.0% of steps", "path (1): accepted in 25.0% of steps"]
    circles = list(root.iter(f"{space}circle"))
    assert len(circles) == 5 and len(list(root.iter(f"{space}path"))) == 4
    fills = [int(circle.get("fill")[1:3], 16) for circle in circles]  # red falls as blue deepens
    assert fills[0] < fills[1] < fills[2] < fills[3] < fills[4]
    assert root.find(f"{space}title").text == "a < b"


def test_svg_nodes_do_not_overlap_and_stay_inside():
    tree = Topology.dense([4, 3, 2])
    root = xml.fromstring(svg(tree))
    found = [element for element in root.iter() if element.tag.endswith("circle")]
    circles = [tuple(float(circle.get(name)) for name in ("cx", "cy", "r")) for circle in found]
    for i, (x, y, r) in enumerate(circles):
        assert r < x < float(root.get("width")) - r and r < y < float(root.get("height")) - r
        assert all((x - a) ** 2 + (y - b) ** 2 > (2 * r) ** 2 for a, b, _ in circles[:i])


@pytest.mark.parametrize("draw_it", [draw, svg])
def test_wrong_lengths_are_refused(draw_it):
    with pytest.raises(ValueError, match="3 shares for a tree of 4"):
        draw_it(SHAPE, (0.1, 0.2, 0.3))
    with pytest.raises(ValueError, match="1 labels for a tree of 5"):
        draw_it(SHAPE, labels=["a"])
