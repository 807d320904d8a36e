"""This module says how fast all jobs of a cluster train: where their tasks lie (the mechanistic world), or wherever."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dl2_scheduler.cluster.hardware.machines import Floats, Ints, Machines
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER, PlacementArrays
from dl2_scheduler.cluster.hardware.profiles import Profile
from dl2_scheduler.cluster.hardware.topology import Topology
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.sim.placed.contention import Contention
from dl2_scheduler.sim.placed.exchange import Pairs, pairs_of, shares, slowest, threads
from dl2_scheduler.sim.placed.network import MB_A_SECOND, max_min, with_senders
from dl2_scheduler.sim.placed.traits import TRAITS, Needs, Traits

_MOST_SERVERS = 256  # of a job
_CPU, _PCIE, _GPU = range(3)
_MB, _COMPUTED, _WIRE, _WITHIN = range(4)


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
        steps = self.steps(placements)
        with np.errstate(divide="ignore"):
            rates: Floats = placements.counts(WORKER) * self.needs.batch[placements.model] / steps
        return np.where(np.isfinite(rates), rates, 0.0)

    def steps(self, placements: PlacementArrays) -> Floats:
        """Return the seconds of each job's step, (jobs,); infinite for one that lacks a role."""
        computing, moving = self.contention.slowdowns(placements)
        pairs = pairs_of(placements)
        phases = self.needs.steps[placements.model[placements.job[pairs.workers]]]
        own = phases[:, _CPU] * (1 + computing[pairs.workers]) + phases[:, _PCIE] * (1 + moving[pairs.workers])
        exchange = slowest(pairs.start, self._exchange(placements, pairs, computing))
        steps = np.zeros(len(placements.model))
        np.maximum.at(steps, placements.job[pairs.workers], own + phases[:, _GPU] + exchange)
        lacking = (placements.counts(WORKER) == 0) | (placements.counts(SERVER) == 0)
        return np.where(lacking, np.inf, steps)

    def _exchange(self, placements: PlacementArrays, pairs: Pairs, computing: Floats) -> Floats:
        """Return the seconds of each pair's exchange, (pairs,).

        Args:
            placements: of all tasks.
            pairs: of them.
            computing: slowdown of each task, (tasks,).
        """
        job = placements.job[pairs.worker]
        model = placements.model[job]
        sizes = self.needs.exchange[model]
        part = sizes[:, _MB] * shares(pairs.rank, placements.counts(SERVER)[job], self.needs.hottest[model])
        crowd = placements.counts(WORKER)[job] ** self.needs.crowding[model]
        computed = part * crowd / sizes[:, _COMPUTED] * (1 + computing[pairs.server])
        seconds: Floats = computed + part / sizes[:, _WITHIN]
        node = self.machines.node_of[placements.group]
        apart = np.flatnonzero(node[pairs.worker] != node[pairs.server])
        if len(apart):
            speeds = self._wires(placements, pairs, apart, node)
            seconds[apart] = computed[apart] + part[apart] / speeds
        return seconds

    def _wires(self, placements: PlacementArrays, pairs: Pairs, apart: Ints, node: Ints) -> Floats:
        """Return the MB/s of each pair's flow between nodes, (apart,).

        Args:
            placements: of all tasks.
            pairs: of them.
            apart: indices of those that do not share a node.
            node: of each task, (tasks,).
        """
        wire = self.needs.exchange[placements.model[placements.job], _WIRE] / MB_A_SECOND
        sending = threads(pairs, apart, wire, len(node))
        worker, server = pairs.worker[apart], pairs.server[apart]
        flow = _MOST_SERVERS * placements.number[placements.job[worker]] + pairs.rank[apart]
        routes = self.topology.routes(node[worker], node[server], flow)
        capacity, routes = with_senders(self.topology.capacity, routes, np.stack([worker, server], axis=1), sending)
        return MB_A_SECOND * max_min(capacity, routes.start, routes.links, wire[worker])
