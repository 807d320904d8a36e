"""This module is the graph scheduler's world: its interference model and its law of speed, as its paper prints them.

The paper keeps all coefficients and the models' profiles to itself: ours are drawn, and scaled until six jobs on three
servers lose a third of their speed, as its figure 1 has it. As printed, a job alone has a slowdown; here it has none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from dl2_scheduler.cluster.hardware.machines import GPU, HARMONY, Floats, Ints, Machines
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER, PlacementArrays, Rated
from dl2_scheduler.cluster.hardware.profiles import HARMONY_MODELS, Profile
from dl2_scheduler.cluster.hardware.topology import Topology
from dl2_scheduler.sim.placed.change import LinkUse, beside, near, renewed, users
from dl2_scheduler.sim.placed.exchange import Crossing, crossing_of, flow_numbers, pairs_of, use_of
from dl2_scheduler.sim.placed.formula.law import LawTables, LawTasks, loads_of, rates_of, slowdowns_of, tried_rates
from dl2_scheduler.sim.placed.network import MB_A_SECOND, equal_share
from dl2_scheduler.sim.placed.placed_speed import RatedFlows

LOSS = 0.33
"""Part of its speed that a job loses on the average where six of them are on three servers (the paper's figure 1)."""
_CPU_SPREAD, _PCIE_SPREAD = 0.15, 0.15  # standard deviations of the logarithms of what is drawn about a profile


class Loads(NamedTuple):
    """`Loads` are what the paper's model looks at.

    Attributes:
        beside_cpu: cores that tasks of other jobs use beside each task, (tasks,).
        own_cpu: cores that it uses itself, (tasks,).
        beside_pcie: Gb/s of PCIe that tasks of other jobs use beside it, (tasks,).
        own_pcie: Gb/s that it uses itself, (tasks,).
    """

    beside_cpu: Floats
    own_cpu: Floats
    beside_pcie: Floats
    own_pcie: Floats


@dataclass(frozen=True)
class Coefficients:
    """These `Coefficients` are the seven of the paper's model.

    Attributes:
        cpu: alpha 1 to 3 and lambda 1: a1 exp(a2 U + a3 C) + l1, U and C in cores.
        pcie: beta 1 and 2, and lambda 2: b1 U + b2 P + l2, U and P in Gb/s.
    """

    cpu: tuple[float, float, float, float]
    pcie: tuple[float, float, float]

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> "Coefficients":
        """Return some of a plausible order, not scaled yet: half of the harm is done after some three cores more."""
        alpha = (1.0, float(rng.uniform(0.30, 0.33)), float(rng.uniform(0.1, 0.2)))
        beta = float(rng.uniform(2.2, 2.6)), float(rng.uniform(0.5, 1.5))
        return cls((*alpha, -float(rng.uniform(0.9, 1.1))), (*beta, float(rng.uniform(0.0, 0.05))))

    def times(self, factor: float) -> "Coefficients":
        """Return those by which all slowdowns are so many times as large."""
        a1, a2, a3, l1 = self.cpu
        b1, b2, l2 = self.pcie
        return Coefficients((factor * a1, a2, a3, factor * l1), (factor * b1, factor * b2, factor * l2))

    def slowdown(self, loads: Loads) -> Floats:
        """Return what computing takes more, as a part of itself, (tasks,)."""
        return slowdowns_of(np.column_stack(loads), self.as_array)

    @property
    def as_array(self) -> Floats:
        """Return all seven, (7,)."""
        return np.array([*self.cpu, *self.pcie])


@dataclass(frozen=True)
class FormulaInterference:
    """See `Interference`: the sum of what sharing cores and what sharing PCIe costs, each 0 where nobody shares.

    Attributes:
        machines: on which tasks lie.
        coefficients: of the model.
        cpu: cores that a task uses alone, by model and role, (models, 2).
        pcie: Gb/s that it moves over PCIe alone, by model and role, (models, 2).
    """

    machines: Machines
    coefficients: Coefficients
    cpu: Floats
    pcie: Floats

    @classmethod
    def drawn(
        cls, machines: Machines, profiles: Mapping[str, Profile], seed: int, loss: float = LOSS
    ) -> "FormulaInterference":
        """Return the model with everything drawn that the paper does not say, and scaled to its figure 1.

        Args:
            machines: on which tasks lie.
            profiles: of models, about which their uses are drawn; those of Harmony's are among them.
            seed: of the draws.
            loss: see `LOSS`: how strong the interference is.
        """
        rng = np.random.default_rng(seed)
        known = [profiles[name] for name in sorted(profiles)]
        cpu = np.array([[profile.cpu_worker, profile.cpu_server] for profile in known])
        pcie = np.array([[_pcie_gbps(profile), 0.0] for profile in known])
        cpu *= np.exp(rng.normal(0.0, _CPU_SPREAD, cpu.shape))
        pcie *= np.exp(rng.normal(0.0, _PCIE_SPREAD, pcie.shape))
        coefficients = Coefficients.drawn(rng)
        pairs = cls(Machines.alike(HARMONY, 1), coefficients, cpu, pcie)
        models = [sorted(profiles).index(name) for name in HARMONY_MODELS]
        alone = np.concatenate([pairs.slowdown(_pair(len(known), *two))[[0, 2]] for two in combinations(models, 2)])
        factor = float(brentq(lambda factor: np.mean(1 - 1 / (1 + factor * alone)) - loss, 0.0, 1e6))
        return cls(machines, coefficients.times(factor), cpu, pcie)

    def slowdown(self, placements: PlacementArrays) -> Floats:
        """See `Interference.slowdown`."""
        return self.coefficients.slowdown(self.loads(placements))

    def loads(self, placements: PlacementArrays) -> Loads:
        """Return what lies beside each task."""
        model, group = placements.model[placements.job], placements.group
        use = np.column_stack([self.cpu[model, placements.role], self.pcie[model, placements.role]])
        node = self.machines.node_of[group]
        return Loads(*loads_of(placements.job, group, node, use, self._cores, len(self.machines.nodes)).T)

    @cached_property
    def _cores(self) -> Floats:
        return np.array([socket.cores for socket in self.machines.sockets], dtype=float)


def _pcie_gbps(profile: Profile) -> float:
    """Return what a worker moves to and from its GPU: parameters and gradients, once a step."""
    return 2 * profile.size_mb / MB_A_SECOND / profile.step_s if profile.worker[GPU] else 0.0


def _pair(models: int, one: int, other: int) -> PlacementArrays:
    """Return two jobs on one server, a worker and a server each; the first job's worker is task 0, the other's 2."""
    job, role = np.array([0, 0, 1, 1]), np.array([WORKER, SERVER] * 2)
    return PlacementArrays(np.array([one, other]), job, role, np.zeros(4, dtype=np.int64), np.arange(2))


@dataclass(frozen=True)
class Formula:
    """See `PlacedSpeed`: a step is its slowest worker's computing, and then its slowest exchange.

    Workers divide a batch that stays as large as one worker's; a link divides itself equally among its flows; inside a
    node an exchange has the link between two sockets for itself.

    Attributes:
        machines: on which tasks lie.
        topology: by which its nodes are linked.
        profiles: of the models, which tasks know by their alphabetical order.
        interference: what computing takes more.
    """

    machines: Machines
    topology: Topology
    profiles: Mapping[str, Profile]
    interference: FormulaInterference

    @classmethod
    def drawn(
        cls, machines: Machines, topology: Topology, profiles: Mapping[str, Profile], seed: int, loss: float = LOSS
    ) -> "Formula":
        """Return a world with an interference that is drawn.

        Args:
            machines: on which tasks lie.
            topology: by which its nodes are linked.
            profiles: of the models.
            seed: see `FormulaInterference.drawn`.
            loss: see there.
        """
        return cls(machines, topology, profiles, FormulaInterference.drawn(machines, profiles, seed, loss))

    def rates(self, placements: PlacementArrays) -> Floats:
        """See `PlacedSpeed.rates`."""
        return self.rated(placements).rates

    def rated(self, placements: PlacementArrays) -> RatedFlows:
        """See `ChangingSpeed.rated`."""
        crossing = crossing_of(self.machines, self.topology, placements)
        use = self._use(placements, crossing)
        rates = self._rates(placements, crossing, self.interference.slowdown(placements), use.load)
        return RatedFlows(placements, rates, use)

    def delta(self, before: Rated, placements: PlacementArrays, changed: Ints) -> RatedFlows:
        """See `ChangingSpeed.delta`: who shares a node, or a link, with a changed job is rated anew."""
        if not isinstance(before, RatedFlows):
            return self.rated(placements)
        those = np.zeros(len(placements.model), dtype=np.bool_)
        those[changed] = True
        moved = placements.of_tasks(those[placements.job])
        new = self._use(moved, crossing_of(self.machines, self.topology, moved))
        use = renewed(before.use, those, new, np.ones(len(those)))
        felt = beside(before.placements, placements, those, self.machines.node_of)
        felt |= users(use.routes, before.use.load != use.load)
        node = self.machines.node_of[placements.group]
        tasks, own = near(placements.job, node, felt, len(self.machines.nodes))
        slowed = self.interference.slowdown(placements.of_tasks(tasks))[:own]
        some = placements.of_tasks(tasks[:own])
        rates = self._rates(some, crossing_of(self.machines, self.topology, some), slowed, use.load)
        return RatedFlows(placements, np.where(felt, rates, before.rates), use)

    def tried(self, placements: PlacementArrays, job: int, groups: Ints) -> Floats:
        """See `TriedSpeed.tried`."""
        own = placements.job == job
        stay, moved = placements.of_tasks(~own), placements.of_tasks(own)
        tasks_of = zip((stay.job, stay.role, stay.group), (moved.job, moved.role, moved.group), strict=True)
        job_of, role, group = (np.concatenate(pair) for pair in tasks_of)
        pairs = pairs_of(job_of, role, len(placements.model))
        crossing = crossing_of(self.machines, self.topology, stay)
        lone = pairs_of(moved.job, moved.role, len(moved.model))
        node = self.machines.node_of[groups]
        flows = np.tile(flow_numbers(placements, moved.job[lone.worker], lone.rank), len(groups))
        routes = self.topology.routes(node[:, lone.worker].ravel(), node[:, lone.server].ravel(), flows)
        model = placements.model[job_of]
        use = np.column_stack([each[model, role] for each in (self.interference.cpu, self.interference.pcie)])
        jobs = self._models[placements.model]
        tasks = LawTasks(jobs, job_of, group, use, pairs, crossing.apart, crossing.routes)
        return tried_rates(self._tables, tasks, groups, routes)

    @cached_property
    def _tables(self) -> LawTables:
        cores = np.array([socket.cores for socket in self.machines.sockets], dtype=float)
        coefficients = self.interference.coefficients.as_array
        return LawTables(self.machines.node_of, cores, self._qpi, self.topology.capacity, coefficients)

    def _use(self, placements: PlacementArrays, crossing: Crossing) -> LinkUse:
        """Return what links jobs take; each flow counts for one."""
        return use_of(self.topology, placements, crossing, np.ones(len(placements.model)))

    def _rates(self, placements: PlacementArrays, crossing: Crossing, slowed: Floats, load: Floats) -> Floats:
        """Return the rates of jobs, (jobs,).

        Args:
            placements: of their tasks.
            crossing: their pairs.
            slowed: slowdown of each task, (tasks,).
            load: flows of each link, of these jobs and of all others, (links,).
        """
        pairs = crossing.pairs
        group, node = placements.group, self.machines.node_of[placements.group]
        gbps = np.where(group[pairs.worker] == group[pairs.server], np.inf, self._qpi[node[pairs.worker]])
        gbps[crossing.apart] = equal_share(self.topology.capacity, crossing.routes, load)
        return rates_of(self._models[placements.model], placements.job, pairs, gbps, slowed)

    @cached_property
    def _qpi(self) -> Floats:
        return np.array([node.qpi_gbps for node in self.machines.nodes])

    @cached_property
    def _models(self) -> Floats:
        """The seconds that a worker computes alone, the MB, and the samples of a step, of each model, (models, 3)."""
        known = [self.profiles[name] for name in sorted(self.profiles)]
        return np.array([[profile.alone_s, profile.size_mb, profile.batch] for profile in known])
