"""This module finds the worlds of jobs whose speeds depend on their places by their names."""

from collections.abc import Mapping
from enum import StrEnum

from dl2_scheduler.cluster.hardware.machines import Machines
from dl2_scheduler.cluster.hardware.placements import PlacedSpeed
from dl2_scheduler.cluster.hardware.profiles import Profile
from dl2_scheduler.cluster.hardware.topology import Topology
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.sim.placed.formula.world import Formula
from dl2_scheduler.sim.placed.placed_speed import Apart, Mechanistic
from dl2_scheduler.sim.shipped import shipped_speeds


class WorldType(StrEnum):
    """A `WorldType` says how fast jobs really train at their places."""

    MECHANISTIC = "mechanistic"
    FORMULA = "formula"
    APART = "apart"
    MEASURED = "measured"


_SHIPPED_AS = {"ctc": "cnn-text-classification"}
"""What the shipped speeds call a model of the papers that has another name there."""


def make_world(
    world: WorldType,
    machines: Machines,
    topology: Topology,
    profiles: Mapping[str, Profile],
    most: int,
    seed: int = 0,
) -> PlacedSpeed:
    """Return a world in which any profiles can be.

    Args:
        world: which; not the measured one, which has a table's own: see `measured_scenario`.
        machines: nodes and their groups.
        topology: how nodes are linked.
        profiles: of the models.
        most: tasks of a role that a job may have.
        seed: of what the formulas leave open.
    """
    if world is WorldType.MECHANISTIC:
        return Mechanistic(machines, topology, profiles)
    if world is WorldType.FORMULA:
        return Formula.drawn(machines, topology, profiles, seed)
    if world is WorldType.MEASURED:
        raise ValueError("the measured world has a table's profiles: see measured_scenario")
    models = sorted(profiles)
    shipped = shipped_speeds(most, most)
    return Apart(Speeds({name: shipped.grid(_SHIPPED_AS.get(name, name)) for name in models}), models)
