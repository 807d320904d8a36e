"""A placement policy that learns for a few nodes of one machine, in simulations with the speeds of a fitted model."""

from collections.abc import Callable
from pathlib import Path

from dl2_scheduler.commands.simulation.learning.taught_jobs import TaughtJobs
from dl2_scheduler.learning.placement.placer_lessons import learn_run, take_lessons
from dl2_scheduler.learning.placement.placer_run import PlacerSettings
from dl2_scheduler.policies.placement.registry import local_search
from dl2_scheduler.policies.placement.speed_model import open_speed_model

_INTERVAL, _JOBS, _LOAD = "10s", 24, "2"
"""Jobs take 5 to 25 seconds alone, and two of them come in ten seconds."""
_TAUGHT_SEQUENCES, _SELECTED_SEQUENCES, _UPDATES = 30, 10, 60


def learn_for_nodes(
    model: Path, run: Path, nodes: int, slots: int, task_slots: int, tell: Callable[[str], None]
) -> None:
    """Learn a policy for jobs of one worker and one server, and write it into a folder that `learnt:` opens.

    Args:
        model: folder of the fitted speeds.
        run: the folder.
        nodes: of the cluster.
        slots: of a node.
        task_slots: that a task takes.
        tell: gets a line for each judgement.
    """
    known, task = open_speed_model(model), f"{task_slots}slots"
    jobs = TaughtJobs(f"{nodes}x{slots}slots", task, task, _LOAD, interval=_INTERVAL, tasks=1, jobs=_JOBS)
    lessons = take_lessons(jobs.of_model(known), local_search(known), _TAUGHT_SEQUENCES, _SELECTED_SEQUENCES)
    settings = PlacerSettings(updates=_UPDATES)
    learn_run(run, known, lessons, settings, tell=lambda done, excess: tell(f"{done} updates: {excess:+.1%}"))
