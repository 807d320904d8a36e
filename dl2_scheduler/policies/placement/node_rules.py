"""This module finds rules of placement by their names."""

from collections.abc import Mapping

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import NodeRule

SPREAD = "spread"
"""The default: fewest tasks lose their node together, and what is left over is even."""

NODE_RULES: Mapping[str, NodeRule] = {
    SPREAD: NodeRule.SPREAD,
    "pack": NodeRule.PACK,
    "round-robin": NodeRule.ROUND_ROBIN,
}
"""Rules by their names: they count tasks on nodes, slot by slot anew."""


def placement_rule(name: str = SPREAD) -> NodeRule:
    """Return the rule by which tasks find their node.

    Args:
        name: "spread", "pack" or "round-robin".

    Raises:
        BadInput: it is another.
    """
    try:
        return NODE_RULES[name]
    except KeyError:
        raise BadInput(f"unknown placement {name}: give one of {', '.join(NODE_RULES)}") from None
