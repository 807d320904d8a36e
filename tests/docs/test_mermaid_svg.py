"""docs/mermaid_svg.py: the site shows each Mermaid graph of the pages as a picture, and none of its arrows is lost."""

import itertools
import re
from xml.etree import ElementTree

import pytest

from docs import mermaid_svg
from tests.paths import ROOT

GRAPH = """
flowchart TD
    top --> middle
    middle --> bottom
    top --> bottom: past the middle
"""
GRAPHS = [
    graph
    for page in sorted((ROOT / "docs").rglob("*.md"))
    for graph in re.findall(r"^```mermaid\n(.*?)^```", page.read_text(), re.M | re.S)
]


def of_class(picture, name):
    return [element for element in ElementTree.fromstring(picture).iter() if element.get("class") == name]


@pytest.mark.parametrize("graph", [GRAPH, *GRAPHS])
def test_every_arrow_and_every_node_is_drawn_once(graph):
    arrows = mermaid_svg.parse(graph)
    picture = mermaid_svg.svg(graph)
    assert len(of_class(picture, "arrow")) == len(arrows)
    nodes = {name for arrow in arrows for name in (arrow.source, arrow.target)}
    assert len(of_class(picture, "box")) + len(of_class(picture, "dot")) == len(nodes)
    assert [label.text for label in of_class(picture, "label")] == [arrow.label for arrow in arrows if arrow.label]


def test_arrows_lead_down():
    assert mermaid_svg.layers(mermaid_svg.parse(GRAPH)) == {"top": 0, "middle": 1, "bottom": 2}


def test_a_circle_is_drawn_too():
    assert len(of_class(mermaid_svg.svg("flowchart TD\n    a --> b\n    b --> a\n    b --> b\n"), "arrow")) == 3


def test_nodes_of_a_layer_do_not_overlap():
    arrows = mermaid_svg.parse("flowchart TD\n" + "".join(f"    top --> node_number_{number}\n" for number in range(5)))
    at = mermaid_svg.places(mermaid_svg.rows(arrows, mermaid_svg.layers(arrows)))
    below = sorted((at[name].x, mermaid_svg.width(name)) for name in at if name != "top")
    assert all(x + half / 2 < other - wide / 2 for (x, half), (other, wide) in itertools.pairwise(below))


@pytest.mark.parametrize("graph", ["graph LR\n    a --> b\n", "flowchart TD\n    a --- b\n"])
def test_what_it_does_not_know_is_refused(graph):
    with pytest.raises(ValueError, match="cannot draw"):
        mermaid_svg.svg(graph)
