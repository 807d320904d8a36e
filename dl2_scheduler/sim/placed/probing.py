"""This module measures jobs beside a load generator: the points that LIF is fitted to."""

from collections.abc import Mapping
from itertools import product

import numpy as np

from dl2_scheduler.cluster.hardware.interference import LoadPoint
from dl2_scheduler.cluster.hardware.machines import CPU, Hardware, Machines
from dl2_scheduler.cluster.hardware.profiles import Profile
from dl2_scheduler.cluster.hardware.topologies.flat import flat_of
from dl2_scheduler.sim.placed.calibrate import placed
from dl2_scheduler.sim.placed.placed_speed import Mechanistic
from dl2_scheduler.sim.placed.traits import TRAITS, Traits

_CPU_LOADS = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0)  # cores
_TRAFFIC_LOADS = (0.0, 50.0, 100.0, 200.0, 400.0, 800.0)  # MB/s
_CACHE_A_CORE, _MEMORY_A_CORE = 6.2, 5.3  # MB and GB/s: what the eight models' tasks use for a core, on the average
_LOAD = "load"
NOISE = 0.03
"""Standard deviation of the logarithm of what is measured."""


def probe(
    profiles: Mapping[str, Profile], hardware: Hardware, strength: float = 1.0, seed: int = 0
) -> dict[str, list[LoadPoint]]:
    """Return 60 measurements of each model: one worker and one server on a node, beside ever larger loads.

    A load computes as an average task does, with its share of cache and memory, and exchanges with another node.

    Args:
        profiles: of the models.
        hardware: of the nodes.
        strength: of the contention.
        seed: of the measurements' noise.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, list[LoadPoint]] = {model: [] for model in profiles}
    for cpu, traffic in product(_CPU_LOADS, _TRAFFIC_LOADS):
        world = _beside_load(profiles, hardware, strength, cpu, traffic)
        models = sorted(world.profiles)
        for model in profiles:
            job, load = (model, [0], [0]), (_LOAD, [0], [1])
            alone = world.rates(placed(models, [job]))[0]
            beside = world.rates(placed(models, [job, load]))[0] * rng.lognormal(sigma=NOISE)
            found[model].append(LoadPoint(cpu, traffic, float(alone / beside) - 1))
    return found


def _beside_load(
    profiles: Mapping[str, Profile], hardware: Hardware, strength: float, cpu: float, traffic: float
) -> Mechanistic:
    """Return two nodes on which a load of this size runs as a job of its own model."""
    mbps = max(traffic, 1e-6)
    load = Profile(1, 1, 1e-9, 1.0, mbps, 1e9 * mbps, {CPU: cpu}, {CPU: 0.0}, cpu, 0.0)
    traits = Traits(1.0, 0.0, 0.0, 1.0, (cpu * _CACHE_A_CORE, 0.0), (cpu * _MEMORY_A_CORE, 0.0), 0.0)
    machines = Machines.alike(hardware, 2)
    known = {**profiles, _LOAD: load}, strength, {**TRAITS, _LOAD: traits}
    return Mechanistic(machines, flat_of(machines), *known)
