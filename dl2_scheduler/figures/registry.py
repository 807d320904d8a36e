"""This module finds figures by their numbers."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.figures.chic.registry import CHIC_FIGURES
from dl2_scheduler.figures.comparison import comparison
from dl2_scheduler.figures.draw import Picture, save
from dl2_scheduler.figures.generality import teachers, varied_speeds, wrong_estimates
from dl2_scheduler.figures.lab import Lab
from dl2_scheduler.figures.live import LiveJobs, protocol_steps, suspensions
from dl2_scheduler.figures.placement.graph_registry import GRAPH_FIGURES
from dl2_scheduler.figures.placement.registry import HARMONY_FIGURES
from dl2_scheduler.figures.progress import progress
from dl2_scheduler.figures.sizes import clusters_together, concurrent_jobs
from dl2_scheduler.figures.techniques import left_out, losses, rewards
from dl2_scheduler.figures.unseen import unseen_types


class FigureEntry(NamedTuple):
    """A figure that can be drawn.

    Attributes:
        title: over it.
        make: from a lab's runs.
    """

    title: str
    make: Callable[[Lab], Picture]


FIGURES: Mapping[str, FigureEntry] = {
    "9": FigureEntry("DL2, figure 9: policies side by side", comparison),
    "10": FigureEntry("DL2, figure 10: progress of learning", progress),
    "13": FigureEntry("DL2, figure 13: speeds that vary from job to job", varied_speeds),
    "14": FigureEntry("DL2, figure 14: wrong estimates of epochs", wrong_estimates),
    "15": FigureEntry("DL2, figure 15: types of jobs that come later", unseen_types),
    "16": FigureEntry("DL2, figure 16: other schedulers imitated", teachers),
    "17": FigureEntry("DL2, figure 17: jobs that the network sees at once", concurrent_jobs),
    "18": FigureEntry("DL2, figure 18: clusters that learn one policy", clusters_together),
    "table2": FigureEntry("DL2, table 2: without each technique", left_out),
    "loss": FigureEntry("DL2, section 6.5: losses of supervised learning", losses),
    "reward": FigureEntry("DL2, section 6.5: reward of an action", rewards),
}


class LiveEntry(NamedTuple):
    """This is a figure of live jobs.

    Attributes:
        title: over it.
        make: from jobs that it runs.
    """

    title: str
    make: Callable[[LiveJobs], Picture]


LIVE_FIGURES: Mapping[str, LiveEntry] = {
    "11": LiveEntry("DL2, figure 11: what adding servers costs workers", suspensions),
    "12": LiveEntry("DL2, figure 12: steps of the scaling protocol", protocol_steps),
}


def check_number(number: str) -> None:
    """Refuse what cannot be drawn. Raises BadInput, with what can."""
    simulated = [*FIGURES, *CHIC_FIGURES, *HARMONY_FIGURES, *GRAPH_FIGURES]
    if number not in simulated and number not in LIVE_FIGURES:
        raise BadInput(
            f"no figure {number}: give one of {', '.join(simulated)}, or of live jobs {' or '.join(LIVE_FIGURES)}"
        )


def draw(number: str, lab: Lab, out: Path) -> Path:
    """Make a figure of simulated jobs; the path of its picture.

    Args:
        number: of `FIGURES`.
        lab: where runs come from.
        out: folder for the files.

    Raises:
        BadInput: there is no such figure.
    """
    check_number(number)
    entry = FIGURES[number]
    name = f"figure{number}" if number.isdecimal() else number
    settings = {"figure": number, "seed": lab.seed, "scale": asdict(lab.scale), "speeds": lab.digest}
    return save(entry.make(lab), entry.title, name, out, settings)


def draw_live(number: str, live: LiveJobs, out: Path) -> Path:
    """Make a figure of live jobs; the path of its picture.

    Args:
        number: of `LIVE_FIGURES`.
        live: where jobs run.
        out: folder for the files.

    Raises:
        TrialFailed: a job has not done its part.
    """
    entry = LIVE_FIGURES[number]
    settings = {"figure": number, "seed": live.seed, "scale": asdict(live.scale)}
    return save(entry.make(live), entry.title, f"figure{number}", out, settings)
