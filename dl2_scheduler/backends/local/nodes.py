"""The virtual nodes of one machine."""

import re

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.cluster.template import SLOTS

MOST_NODES = 1024
_GROUP = re.compile(r"([1-9]\d{0,3})x([1-9]\d{0,5})")


def virtual_nodes(text: str) -> tuple[Node, ...]:
    """Nodes with task slots.

    Args:
        text: NODESxSLOTS, as in 2x8; groups of unequal nodes are joined by +.

    Raises:
        BadInput: it is not that.
    """
    nodes: list[Node] = []
    for group in text.split("+"):
        match = _GROUP.fullmatch(group)
        if match is None:
            raise BadInput(f"{group!r} in {text!r}: give NODESxSLOTS, as in 2x8, and + between groups")
        nodes += [Node(f"node-{len(nodes) + place}", {SLOTS: float(match[2])}) for place in range(int(match[1]))]
    if len(nodes) > MOST_NODES:
        raise BadInput(f"{text!r}: {len(nodes)} nodes: give up to {MOST_NODES}")
    return tuple(nodes)
