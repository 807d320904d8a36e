"""This module says how fast all jobs of a cluster train: where their tasks lie (the mechanistic world), or wherever."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dl2_scheduler.cluster.compiled import compiled
from dl2_scheduler.cluster.hardware.machines import Floats, Ints, Machines
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER, PlacementArrays, Rated
from dl2_scheduler.cluster.hardware.profiles import Profile
from dl2_scheduler.cluster.hardware.topology import Topology
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.sim.placed.change import LinkUse, beside, near, reached, renewed
from dl2_scheduler.sim.placed.contention import Contention
from dl2_scheduler.sim.placed.exchange import (
    WIRE,
    Pairs,
    crossing_of,
    exchanges_of,
    pairs_of,
    routes_of,
    use_of,
    wire_speeds,
)
from dl2_scheduler.sim.placed.network import MB_A_SECOND
from dl2_scheduler.sim.placed.traits import TRAITS, Needs, Traits


@dataclass(frozen=True)
class Apart:
    """See `PlacedSpeed`: jobs feel neither each other nor their place, only their counts.

    Attributes:
        speeds: by counts.
        models: names, in the order of the arrays' indices.
    """

    speeds: Speeds
    models: Sequence[str]

    def rates(self, placements: PlacementArrays) -> Floats:
        """See `PlacedSpeed.rates`."""
        counts = zip(placements.model, placements.counts(SERVER), placements.counts(WORKER), strict=True)
        return np.array([self.speeds.of(self.models[model], int(s), int(w)) for model, s, w in counts])


@dataclass(frozen=True)
class Mechanistic:
    """See `PlacedSpeed`: a worker's step goes through its phases, and a job's step is that of its slowest worker.

    Attributes:
        machines: on which tasks lie.
        topology: by which its nodes are linked.
        profiles: of the models, which tasks know by their alphabetical order.
        strength: see `Contention`.
        traits: hidden ones of the models.
    """

    machines: Machines
    topology: Topology
    profiles: Mapping[str, Profile]
    strength: float = 1.0
    traits: Mapping[str, Traits] = field(default_factory=lambda: TRAITS)

    @cached_property
    def needs(self) -> Needs:
        """The needs of the kinds of tasks."""
        return Needs.of(self.profiles, self.traits)

    @cached_property
    def contention(self) -> Contention:
        """Tells what sharing a socket costs."""
        return Contention(self.machines, self.needs, self.strength)

    def rates(self, placements: PlacementArrays) -> Floats:
        """See `PlacedSpeed.rates`."""
        return self._rates(placements, self.contention.slowdowns(placements))

    def rated(self, placements: PlacementArrays) -> "RatedFlows":
        """See `ChangingSpeed.rated`."""
        return RatedFlows(placements, self.rates(placements), self._use(placements))

    def delta(self, before: Rated, placements: PlacementArrays, changed: Ints) -> "RatedFlows":
        """See `ChangingSpeed.delta`: who shares a group, or a tight link, with a changed job is rated anew."""
        if not isinstance(before, RatedFlows):
            return self.rated(placements)
        those = np.zeros(len(placements.model), dtype=np.bool_)
        those[changed] = True
        new = self._use(placements.of_tasks(those[placements.job]))
        use = renewed(before.use, those, new, self._wires(placements))
        groups = np.arange(len(self.machines.sockets))
        felt = beside(before.placements, placements, those, groups)
        felt = reached(before.use, use, new, self.topology.capacity, felt)
        tasks, own = near(placements.job, placements.group, felt, len(groups))
        slowed = self.contention.slowdowns(placements.of_tasks(tasks))[:, :own]
        rates = self._rates(placements.of_tasks(tasks[:own]), slowed)
        return RatedFlows(placements, np.where(felt, rates, before.rates), use)

    def _rates(self, placements: PlacementArrays, slowed: Floats) -> Floats:
        """Return the rates of jobs whose tasks' slowdowns are known.

        Args:
            placements: of their tasks.
            slowed: see `Contention.slowdowns`.
        """
        pairs = pairs_of(placements.job, placements.role, len(placements.model))
        model, node = placements.model[placements.job], self.machines.node_of[placements.group]
        found = exchanges_of(pairs, model, node, slowed[0], self.needs)
        if len(apart := found.apart):
            routes = routes_of(self.topology, placements, pairs, apart, node)
            senders = np.column_stack([pairs.worker[apart], pairs.server[apart]])
            speeds = wire_speeds(self.topology.capacity, routes, senders, self.needs.exchange[model, WIRE])
            found.seconds[apart] += found.part[apart] / speeds
        return _rates(placements.model, placements.job, pairs, found.seconds, slowed, self.needs)

    def _wires(self, placements: PlacementArrays) -> Floats:
        """Return the Gb/s that one flow of each job can get, (jobs,)."""
        wires: Floats = self.needs.exchange[placements.model, WIRE] / MB_A_SECOND
        return wires

    def _use(self, placements: PlacementArrays) -> LinkUse:
        """Return what links jobs take."""
        crossing = crossing_of(self.machines, self.topology, placements)
        return use_of(self.topology, placements, crossing, self._wires(placements))


@dataclass(frozen=True)
class RatedFlows(Rated):
    """See `Rated`.

    Attributes:
        use: of the links.
    """

    use: LinkUse


@compiled
def _rates(model: Ints, job: Ints, pairs: Pairs, seconds: Floats, slowed: Floats, needs: Needs) -> Floats:
    """Return samples a second of each job, (jobs,): its step is that of its slowest worker.

    Args:
        model: of each job, (jobs,).
        job: of each task, (tasks,).
        pairs: of all jobs.
        seconds: of each pair's exchange, (pairs,).
        slowed: see `Contention.slowdowns`.
        needs: of the models.
    """
    steps, workers = np.zeros(len(model)), np.zeros(len(model))
    for number in range(len(pairs.workers)):
        worker = pairs.workers[number]
        exchange = 0.0 if pairs.start[number] < pairs.start[number + 1] else np.inf
        for pair in range(pairs.start[number], pairs.start[number + 1]):
            exchange = max(exchange, seconds[pair])
        cpu, pcie, gpu = needs.steps[model[job[worker]]]
        step = cpu * (1.0 + slowed[0, worker]) + pcie * (1.0 + slowed[1, worker]) + gpu + exchange
        steps[job[worker]] = max(steps[job[worker]], step)
        workers[job[worker]] += 1
    return np.where(workers > 0, workers * needs.batch[model] / np.maximum(steps, 1e-300), 0.0)
