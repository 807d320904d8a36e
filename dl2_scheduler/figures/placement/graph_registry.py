"""This module finds the graph scheduler's figures by their names."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from dl2_scheduler.figures.draw import Picture, save
from dl2_scheduler.figures.placement.graph_comparisons import by_network, by_oversubscription, by_pattern, by_servers
from dl2_scheduler.figures.placement.graph_interference import (
    balanced,
    fitted_forms,
    packed_and_beside,
    same_or_other_processor,
)
from dl2_scheduler.figures.placement.graph_lab import GraphLab
from dl2_scheduler.figures.placement.graph_learning import by_reward, several_or_one


class GraphEntry(NamedTuple):
    """This is a figure of the graph scheduler.

    Attributes:
        title: over it.
        make: draws it.
    """

    title: str
    make: Callable[[GraphLab], Picture]


GRAPH_FIGURES: Mapping[str, GraphEntry] = {
    "graph-1": GraphEntry("graph scheduler, figure 1: packed jobs, and beside CTC", lambda _: packed_and_beside()),
    "graph-2": GraphEntry("graph scheduler, figure 2b: two jobs on a server", lambda _: same_or_other_processor()),
    "graph-3": GraphEntry("graph scheduler, figure 3a: jobs spread by load balancing", lambda _: balanced()),
    "graph-table3": GraphEntry("graph scheduler, table III: fitted interference", lambda _: fitted_forms()),
    "graph-7": GraphEntry("graph scheduler, figure 7: patterns of arrivals", by_pattern),
    "graph-8": GraphEntry("graph scheduler, figure 8: types of servers", by_servers),
    "graph-9": GraphEntry("graph scheduler, figure 9: networks", by_network),
    "graph-10": GraphEntry("graph scheduler, figure 10: several agents, or one", several_or_one),
    "graph-rewards": GraphEntry("graph scheduler: what choices are rewarded for", by_reward),
    "graph-oversubscription": GraphEntry("graph scheduler: gain by oversubscription", by_oversubscription),
}


def draw_graph(number: str, lab: GraphLab, out: Path) -> Path:
    """Make a figure of the graph scheduler in the formula world, and return its path.

    Args:
        number: of `GRAPH_FIGURES`.
        lab: where runs come from.
        out: folder for the files.
    """
    entry = GRAPH_FIGURES[number]
    settings = {"figure": number, "seed": lab.seed, "scale": asdict(lab.scale)}
    return save(entry.make(lab), f"{entry.title} (formula world)", number, out, settings)
