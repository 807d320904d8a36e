"""This module finds the figures of Chic by their names."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

from dl2_scheduler.figures.chic.completion import by_rate, distribution, elsewhere, headroom
from dl2_scheduler.figures.chic.convergence import judged, longer_episodes, returns, visible_jobs
from dl2_scheduler.figures.chic.deciding import run_times, ticks
from dl2_scheduler.figures.chic.lab import ChicLab
from dl2_scheduler.figures.draw import Picture, save


class ChicEntry(NamedTuple):
    """This is a figure of Chic.

    Attributes:
        title: over it.
        make: from a lab's runs.
    """

    title: str
    make: Callable[[ChicLab], Picture]


CHIC_FIGURES: Mapping[str, ChicEntry] = {
    "chic-headroom": ChicEntry("what rules leave to Chic, by arrival rate", headroom),
    "chic-4a": ChicEntry("Chic, figure 4a: completion time by arrival rate", by_rate),
    "chic-4b": ChicEntry("Chic, figure 4b: completion times of jobs", distribution),
    "chic-4c": ChicEntry("Chic, figure 4c: learnt at one rate, judged at others", elsewhere),
    "chic-5a": ChicEntry("Chic, figure 5a: what deciding takes", run_times),
    "chic-5b": ChicEntry("Chic, figure 5b: how often Optimus decides", ticks),
    "chic-6a": ChicEntry("Chic, figure 6a: rewards while Chic learns", partial(returns, form="Chic")),
    "chic-6b": ChicEntry("Chic, figure 6b: completion time while Chic learns", partial(judged, form="Chic")),
    "chic-6c": ChicEntry("Chic, figure 6c: rewards while Chic-Pair learns", partial(returns, form="Chic-Pair")),
    "chic-6d": ChicEntry("Chic, figure 6d: completion time while Chic-Pair learns", partial(judged, form="Chic-Pair")),
    "chic-7a": ChicEntry("Chic, figure 7a: jobs of an episode", longer_episodes),
    "chic-7b": ChicEntry("Chic, figure 7b: jobs that are seen", visible_jobs),
}


def draw_chic(number: str, lab: ChicLab, out: Path) -> Path:
    """Make a figure of Chic; the path of its picture.

    Args:
        number: of `CHIC_FIGURES`.
        lab: where runs come from.
        out: folder for the files.
    """
    entry = CHIC_FIGURES[number]
    settings = {"figure": number, "seed": lab.seed, "world": lab.world.name, "scale": asdict(lab.scale)}
    title = f"{entry.title} ({lab.world.name} world)"
    return save(entry.make(lab), title, number, out, {**settings, "speeds": lab.digest})
