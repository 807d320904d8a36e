"""Draw the pages' Mermaid graphs as SVG, and nothing else: docs/pictures has what was drawn by hand.

Because of them the site needs no script from elsewhere. This module knows the two kinds that `docs.generated_sections`
writes, a state diagram and a flowchart from top to bottom, and lays them out in layers: an arrow leads from one layer
to a lower one wherever the graph has no circle.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

ARROW = re.compile(r"\s+(\S+) --> ([^\s:]+)(?:: (.*))?")
LETTER, BOX, GAP, LAYER = 7.5, 30, 26, 78
"""Width of a letter, height of a box, space between two of a layer, and from one layer to the next, in pixels."""
HEAD = (
    '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0L8 4L0 8z"/></marker>'
)
"""The head of an arrow."""


class Arrow(NamedTuple):
    """An `Arrow` of a graph leads from one node to another, and may say when."""

    source: str
    target: str
    label: str = ""


class PicturePoint(NamedTuple):
    """A `PicturePoint` is the middle of a node or the bend of an arrow, in pixels from the upper left corner."""

    x: float
    y: float


def parse(text: str) -> list[Arrow]:
    """Return the arrows of a Mermaid graph.

    Raises:
        ValueError: a line is no arrow of the form `A --> B` or `A --> B: label`.
    """
    kind, *lines = text.strip().splitlines()
    found = [ARROW.fullmatch(line) for line in lines]
    if kind not in ("stateDiagram-v2", "flowchart TD") or not all(found):
        raise ValueError(f"docs.mermaid_svg cannot draw this Mermaid graph:\n{text}")
    arrows = [Arrow(match[1], match[2], match[3] or "") for match in found if match]
    return [arrow._replace(target="[end]") if arrow.target == "[*]" else arrow for arrow in arrows]


def layers(arrows: Sequence[Arrow]) -> dict[str, int]:
    """Return the layer of each node: one more than the lowest of those that lead to it, circles left aside."""
    lead: dict[str, list[str]] = {}
    for source, target, _ in arrows:
        lead.setdefault(source, []).append(target)
        lead.setdefault(target, [])
    layer = dict.fromkeys(lead, 0)

    def visit(node: str, path: tuple[str, ...]) -> None:
        for target in lead[node]:
            if target not in (*path, node) and layer[target] <= layer[node]:
                layer[target] = layer[node] + 1
                visit(target, (*path, node))

    for node in sorted(lead, key=lambda name: name in {arrow.target for arrow in arrows}):
        visit(node, ())
    return layer


def bends(arrow: Arrow, layer: Mapping[str, int]) -> list[str]:
    """Return names for the places where an arrow passes the layers between its ends."""
    first, last = sorted((layer[arrow.source], layer[arrow.target]))
    names = [f"{arrow.source}>{arrow.target}@{between}" for between in range(first + 1, last)]
    return names if layer[arrow.source] <= layer[arrow.target] else names[::-1]


def rows(arrows: Sequence[Arrow], layer: Mapping[str, int]) -> list[list[str]]:
    """Return the nodes and bends of each layer from left to right, those with common neighbours near each other."""
    placed: list[list[str]] = [[] for _ in range(max(layer.values()) + 1)]
    beside: dict[str, list[str]] = {}
    for node, at in layer.items():
        placed[at].append(node)
    for arrow in arrows:
        passed = bends(arrow, layer)
        for name in passed:
            placed[int(name.rpartition("@")[2])].append(name)
        chain = [arrow.source, *passed, arrow.target]
        for one, other in itertools.pairwise(chain):
            beside.setdefault(one, []).append(other)
            beside.setdefault(other, []).append(one)
    for turn in range(8):
        for at in range(len(placed)) if turn % 2 else reversed(range(len(placed))):
            where = {name: (index + 0.5) / len(row) for row in placed for index, name in enumerate(row)}
            placed[at].sort(key=lambda name: sum(where[other] for other in beside[name]) / len(beside[name]))
    return placed


def width(name: str) -> float:
    """Return the width of a node or of the room for a bend, in pixels."""
    if "@" in name:
        return 60
    return 14 if name in ("[*]", "[end]") else len(name) * LETTER + 24


def places(placed: Iterable[Sequence[str]]) -> dict[str, PicturePoint]:
    """Return the middle of each node and bend; layers are centred above one another."""
    placed = list(placed)
    wide = [sum(width(name) + GAP for name in row) for row in placed]
    middles = {}
    for at, row in enumerate(placed):
        left = (max(wide) - wide[at]) / 2 + GAP
        for name in row:
            middles[name] = PicturePoint(left + width(name) / 2, 30 + at * LAYER)
            left += width(name) + GAP
    return middles


def curve(points: Sequence[PicturePoint]) -> str:
    """Return the path of an arrow from the box of its first point to the box of its last."""
    down = points[-1].y > points[0].y
    ends = BOX / 2 if down else -BOX / 2
    points = [
        PicturePoint(points[0].x, points[0].y + ends),
        *points[1:-1],
        PicturePoint(points[-1].x, points[-1].y - ends),
    ]
    path = f"M{points[0].x:.0f} {points[0].y:.0f}"
    for one, other in itertools.pairwise(points):
        middle = (one.y + other.y) / 2
        path += f" C{one.x:.0f} {middle:.0f} {other.x:.0f} {middle:.0f} {other.x:.0f} {other.y:.0f}"
    return path


def draw_arrow(arrow: Arrow, layer: Mapping[str, int], at: Mapping[str, PicturePoint]) -> str:
    """Return an arrow and its label as SVG.

    Args:
        arrow: the arrow.
        layer: the layer of each node.
        at: the middle of each node and of each bend.
    """
    if arrow.source == arrow.target:
        x, y = at[arrow.source].x - width(arrow.source) / 2, at[arrow.source].y
        path = f"M{x:.0f} {y - 6:.0f} C{x - 40:.0f} {y - 22:.0f} {x - 40:.0f} {y + 22:.0f} {x:.0f} {y + 6:.0f}"
        text = PicturePoint(x - 50, y)
    else:
        points = [at[name] for name in (arrow.source, *bends(arrow, layer), arrow.target)]
        path = curve(points)
        text = PicturePoint((points[0].x + points[1].x) / 2, (points[0].y + points[1].y) / 2)
    place = f'x="{text.x:.0f}" y="{text.y + 4:.0f}"'
    label = f'<text class="label" {place}>{escape(arrow.label)}</text>' if arrow.label else ""
    return f'<path class="arrow" d="{path}"/>{label}'


def draw_node(name: str, at: PicturePoint) -> str:
    """Return a node as SVG: a box with its name, or a dot for the beginning and the end."""
    if name in ("[*]", "[end]"):
        return f'<circle class="dot" cx="{at.x:.0f}" cy="{at.y:.0f}" r="7"/>'
    box = f'x="{at.x - width(name) / 2:.0f}" y="{at.y - BOX / 2:.0f}" width="{width(name):.0f}" height="{BOX}" rx="5"'
    return f'<rect class="box" {box}/><text x="{at.x:.0f}" y="{at.y + 5:.0f}">{escape(name)}</text>'


def svg(text: str) -> str:
    """Return a Mermaid graph as an SVG element to stand in a page; `docs/pictures/site.css` has its colours."""
    arrows = parse(text)
    layer = layers(arrows)
    at = places(rows(arrows, layer))
    right = max(point.x + width(name) / 2 for name, point in at.items()) + GAP
    drawn = [draw_arrow(arrow, layer, at) for arrow in arrows] + [draw_node(name, at[name]) for name in layer]
    size = f'viewBox="0 0 {right:.0f} {60 + max(layer.values()) * LAYER}" style="max-width: {right:.0f}px"'
    return f'<svg class="graph" role="img" {size}><defs>{HEAD}</defs>{"".join(drawn)}</svg>'
