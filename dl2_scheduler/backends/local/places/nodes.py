"""This module makes the virtual nodes of one machine."""

import re

from dl2_scheduler.cluster.document.template import SLOTS
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.jobs import Node

MOST_NODES = 1024
MOST_SLOTS = 999_999
"""Of one node."""

_GROUP = re.compile(r"([1-9]\d*)x([1-9]\d*)")


def virtual_nodes(text: str, option: str = "--slots") -> tuple[Node, ...]:
    """Make nodes with task slots.

    Args:
        text: NODESxSLOTS, as in 2x8; groups of unequal nodes are joined by +.
        option: that it was given by.

    Raises:
        BadInput: it is not that.
    """
    nodes: list[Node] = []
    for group in text.split("+"):
        match = _GROUP.fullmatch(group)
        if match is None:
            raise BadInput(
                f"{option} {text:.100}: {group[:100]!r} is not NODESxSLOTS, as in 2x8, joined by + to others"
            )
        count, slots = float(match[1]), float(match[2])
        if len(nodes) + count > MOST_NODES or slots > MOST_SLOTS:
            raise BadInput(f"{option} {text:.100}: give up to {MOST_NODES} nodes, of up to {MOST_SLOTS:,} slots each")
        nodes += [Node(f"node-{len(nodes) + place}", {SLOTS: slots}) for place in range(int(count))]
    return tuple(nodes)
