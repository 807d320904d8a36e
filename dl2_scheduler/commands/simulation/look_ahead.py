"""This module makes the placement policies of simulations by their names: all others, and `look-ahead:RUN`."""

import json
from dataclasses import fields, replace
from pathlib import Path

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.commands.simulation.learning.taught_jobs import TaughtJobs
from dl2_scheduler.policies.learnt.dl2 import SETTINGS_FILE
from dl2_scheduler.policies.learnt.placer import LearntPlacer
from dl2_scheduler.policies.learnt_names import named_folder
from dl2_scheduler.policies.placement.registry import LEARNT, LOOK_AHEAD, NamedPlacement, make_placement
from dl2_scheduler.policies.placement.speed_model import SpeedModel
from dl2_scheduler.sim.arrivals import Pattern
from dl2_scheduler.sim.placed.scenario import Scenario
from dl2_scheduler.sim.placed.worlds import WorldType
from elastic_ps.system.bounded_files import read_text


def make_simulated_placement(name: str) -> NamedPlacement:
    """Make a placement policy for a simulation.

    Args:
        name: as for `make_placement`; or look-ahead:RUN, the run of `dl2 learn-placement`, whose policy tries many ways
            to place an interval's jobs in the run's fitted speeds, where jobs come as those that it learnt from.

    Raises:
        BadInput: there is no such policy or file, or a run does not say what it learnt from.
    """
    kind, _, path = name.partition(":")
    if kind != LOOK_AHEAD:
        return make_placement(name)
    from dl2_scheduler.learning.placement.roll_out_placer import RollOutPlacer  # it compiles

    run = named_folder(path)
    learnt = make_placement(f"{LEARNT}:{run}")
    known = learnt.knows
    if not isinstance(learnt.policy, LearntPlacer) or known is None or known.speeds is None:
        raise BadInput(f"{name}: {run} has no speeds.npz, in which it could look ahead: learn another")
    scenarios = [replace(scenario, world=known.speeds) for scenario in _may_come(run, known)]
    return NamedPlacement(name, RollOutPlacer(learnt.policy, scenarios), known)


def _may_come(run: Path, known: SpeedModel) -> list[Scenario]:
    """Return the clusters that a run learnt in, whose jobs may come. Raises BadInput."""
    try:
        told = json.loads(read_text(run / SETTINGS_FILE))["settings"]
        taught = {field.name: told[field.name] for field in fields(TaughtJobs)}
        jobs = TaughtJobs(**{**taught, "pattern": Pattern(taught["pattern"])})
        return jobs.of_world(WorldType(told["world"])) if told["world"] else jobs.of_model(known)
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise BadInput(f"{run}: {SETTINGS_FILE} does not say from which jobs it was learnt: {error!r}") from error
