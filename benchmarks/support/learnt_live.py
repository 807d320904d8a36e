"""A placement policy that learns for a few nodes of one machine, in simulations with the speeds of a fitted model."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dl2_scheduler.cluster.hardware.machines import CPU, GPU, Hardware, Machines, Socket
from dl2_scheduler.cluster.hardware.topologies.flat import flat_of
from dl2_scheduler.learning.placement.imitation import Choices, watch
from dl2_scheduler.learning.placement.judging import TAUGHT, PlacementJudge
from dl2_scheduler.learning.placement.placer_run import PlacerSettings, learn_placer
from dl2_scheduler.policies.learnt.placer_files import PlacerRun, save_placer
from dl2_scheduler.policies.placement.registry import make_placement
from dl2_scheduler.policies.placement.speed_model import open_speed_model, save_speed_model
from dl2_scheduler.sim.placed.scenario import Scenario
from dl2_scheduler.sim.placed.workloads import Workload

_INTERVAL_SECONDS, _JOBS, _LOAD = 10.0, 24, 2.0
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
    known = open_speed_model(model)
    assert known.speeds is not None, "it was fitted just now"
    task = {CPU: float(task_slots), GPU: 0.0}
    profiles = {name: replace(profile, worker=task, server=task) for name, profile in known.profiles.items()}
    machines = Machines.alike(Hardware((Socket(cores=slots, gpus=0, threads=1),)), nodes)
    workload = Workload(profiles, _INTERVAL_SECONDS, _JOBS, _LOAD, "uniform", most=1)
    scenario = Scenario(machines, flat_of(machines), profiles, known.speeds, workload)
    planner = make_placement(f"local-search:{model}").policy
    judge, lessons = PlacementJudge([scenario], planner, _SELECTED_SEQUENCES), Choices()
    watch([scenario], planner, range(TAUGHT, TAUGHT + _TAUGHT_SEQUENCES), [lessons])
    placer = learn_placer([scenario], lessons, judge, PlacerSettings(updates=_UPDATES), tell=tell)
    save_speed_model(run, known)
    save_placer(run, PlacerRun(known.models, placer, known.speeds))
