"""This module says how fast all jobs of a cluster train: where their tasks lie (the mechanistic world), or wherever."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dl2_scheduler.cluster.compiled import compiled
from dl2_scheduler.cluster.hardware.machines import Floats, Ints, Machines
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER, PlacementArrays
from dl2_scheduler.cluster.hardware.profiles import Profile
from dl2_scheduler.cluster.hardware.topology import Topology
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.sim.placed.contention import Contention
from dl2_scheduler.sim.placed.exchange import WIRE, Exchanges, Pairs, exchanges_of, pairs_of, wire_speeds
from dl2_scheduler.sim.placed.traits import TRAITS, Needs, Traits

_MOST_SERVERS = 256  # of a job


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
        slowed = self.contention.slowdowns(placements)
        pairs = pairs_of(placements.job, placements.role, len(placements.model))
        model, node = placements.model[placements.job], self.machines.node_of[placements.group]
        exchanges = exchanges_of(pairs, model, node, slowed[0], self.needs)
        if len(exchanges.apart):
            self._add_wires(placements, pairs, exchanges, model, node)
        return _rates(placements.model, placements.job, pairs, exchanges.seconds, slowed, self.needs)

    def _add_wires(
        self, placements: PlacementArrays, pairs: Pairs, exchanges: Exchanges, model: Ints, node: Ints
    ) -> None:
        """Add to exchanges between nodes what their wires take.

        Args:
            placements: of all tasks.
            pairs: of them.
            exchanges: of the pairs.
            model: of each task, (tasks,).
            node: of each task, (tasks,).
        """
        apart = exchanges.apart
        worker, server = pairs.worker[apart], pairs.server[apart]
        flow = _MOST_SERVERS * placements.number[placements.job[worker]] + pairs.rank[apart]
        routes = self.topology.routes(node[worker], node[server], flow)
        senders, wire = np.column_stack([worker, server]), self.needs.exchange[model, WIRE]
        exchanges.seconds[apart] += exchanges.part[apart] / wire_speeds(self.topology.capacity, routes, senders, wire)


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
