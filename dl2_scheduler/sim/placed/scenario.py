"""This module holds a setting in which placement policies are compared: a cluster, a world, and the jobs that come."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.hardware.machines import HARMONY, Floats, Machines, amounts, named
from dl2_scheduler.cluster.hardware.placements import PlacedSpeed
from dl2_scheduler.cluster.hardware.profiles import HARMONY_MODELS, PUBLISHED, Profile
from dl2_scheduler.cluster.hardware.topologies.flat import flat_of
from dl2_scheduler.cluster.hardware.topology import Topology
from dl2_scheduler.cluster.interfaces import AllocationPolicy, PlacementPolicy
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.sim.bound import hard_bound, lp_bound
from dl2_scheduler.sim.placed.alone import places_alone
from dl2_scheduler.sim.placed.calibrate import placed
from dl2_scheduler.sim.placed.cluster import PlacedCluster
from dl2_scheduler.sim.placed.formula.clusters import (
    SMALL_RACK,
    NetworkType,
    ServerType,
    graph_machines,
    graph_topology,
)
from dl2_scheduler.sim.placed.formula.world import Formula
from dl2_scheduler.sim.placed.placed_speed import Mechanistic
from dl2_scheduler.sim.placed.workloads import Workload, check_load
from dl2_scheduler.sim.simulator import steps

JOBS_OF_A_SERVER = 10
"""Jobs of a sequence for each server of Harmony's testbed, which has six."""
GRAPH_INTERVAL = 1800.0
"""Seconds of an interval of the graph scheduler."""
GRAPH_JOBS = 60
"""Jobs of a sequence, in each partition of the graph scheduler's networks."""
GRAPH_PARTITION = 100
"""Servers of a partition to which its paper's rates of arrival belong."""
GRAPH_LENGTHS = (5.0, 15.0)
"""Intervals that its jobs take alone: no paper says. At its rates they ask for 60% of the GPUs, and 51% of the cpus."""


@dataclass(frozen=True)
class Scenario:
    """A `Scenario` is what all policies of a comparison meet.

    Attributes:
        machines: nodes and their groups.
        topology: how nodes are linked.
        profiles: of the models.
        world: how fast jobs really train.
        workload: of jobs.
    """

    machines: Machines
    topology: Topology
    profiles: Mapping[str, Profile]
    world: PlacedSpeed
    workload: Workload

    @classmethod
    def harmony(cls, mean: float, pattern: str = "uniform", servers: int = 6, strength: float = 1.0) -> "Scenario":
        """Return Harmony's testbed (section VI) in the mechanistic world.

        Args:
            mean: jobs an interval.
            pattern: see `Workload`.
            servers: nodes.
            strength: see `Contention`.
        """
        machines = Machines.alike(HARMONY, servers)
        profiles = {model: PUBLISHED[model] for model in HARMONY_MODELS}
        topology = flat_of(machines)
        world = Mechanistic(machines, topology, profiles, strength)
        jobs = Workload(profiles, jobs=JOBS_OF_A_SERVER * servers, mean=mean, pattern=pattern)
        return cls(machines, topology, profiles, world, jobs)

    @classmethod
    def graph(
        cls,
        network: NetworkType = NetworkType.FAT_TREE,
        servers: ServerType = ServerType.DEFAULT,
        *,
        small: bool = False,
        oversubscription: float = 1.0,
        mean: float = 15.0,
        pattern: str = "uniform",
        lengths: tuple[float, float] = GRAPH_LENGTHS,
        rack: int = SMALL_RACK,
        seed: int = 0,
    ) -> "Scenario":
        """Return a cluster of the graph scheduler's paper (section VI) in the world of its formulas.

        Args:
            network: that links the servers.
            servers: their type.
            small: see `graph_topology`; jobs come in proportion to the servers.
            oversubscription: see `graph_topology`.
            mean: jobs an interval that come to a partition of 100 servers.
            pattern: see `Workload`.
            lengths: see `Workload`.
            rack: see `graph_topology`.
            seed: of the coefficients of interference, and of everything else but jobs.
        """
        topology = graph_topology(network, small, oversubscription, seed, rack)
        machines = graph_machines(servers, topology, seed)
        world = Formula.drawn(machines, topology, PUBLISHED, seed)
        share = float(np.mean(np.bincount(topology.partition_of)) / GRAPH_PARTITION)
        check_load(mean, GRAPH_JOBS, share)
        jobs = Workload(PUBLISHED, GRAPH_INTERVAL, GRAPH_JOBS, mean * share, pattern, 4, topology.partitions, lengths)
        return cls(machines, topology, PUBLISHED, world, jobs)

    @cached_property
    def _speeds_alone(self) -> dict[tuple[str, int, int], float]:
        return {}

    def speed_alone(self, model: str, workers: int, servers: int) -> float:
        """Return the samples a second of a job that has the cluster to itself, at the best place for it.

        Args:
            model: of the job.
            workers: how many it has.
            servers: how many it has.

        Raises:
            BadInput: it fits nowhere.
        """
        key = model, workers, servers
        if key not in self._speeds_alone:
            self._speeds_alone[key] = self._best_alone(*key)
        return self._speeds_alone[key]

    def _best_alone(self, model: str, workers: int, servers: int) -> float:
        profile, models = self.profiles[model], sorted(self.profiles)
        demand = np.array([amounts(profile.worker), amounts(profile.server)])
        places = places_alone(self.machines, self.topology, demand, (workers, servers))
        rates = [float(self.world.rates(placed(models, [(model, *groups)]))[0]) for groups in places]
        if not rates:
            raise BadInput(f"{workers} workers and {servers} servers of {model} fit nowhere: give larger nodes")
        return max(rates)

    def jobs(self, seed: int) -> list[Job]:
        """Return a sequence of jobs."""
        return self.workload.draw(seed, self.speed_alone)

    def completion_times(self, allocation: AllocationPolicy, placement: PlacementPolicy, jobs: Sequence[Job]) -> Floats:
        """Return the intervals from each job's arrival to its end, (jobs,).

        Args:
            allocation: says how many tasks jobs get: as many as they ask for, in the papers.
            placement: says where tasks go.
            jobs: that arrive.
        """
        where = self.machines, self.topology, self.profiles, self.world
        cluster = PlacedCluster(jobs, *where, placement, self.workload.interval_seconds)
        for _ in steps(cluster, allocation, NodeRule.SPREAD):
            pass
        return cluster.completion_times()

    def bounds(self, jobs: Sequence[Job]) -> tuple[float, float]:
        """Return intervals that no policy can beat in the mean: of jobs alone, and of the linear program over capacity.

        The program knows neither groups nor interference, so that it may be far below what can be had.

        Raises:
            BadInput: there are no jobs.
        """
        if not jobs:
            raise BadInput("no jobs: give one or more, as no time bounds none")
        kinds = {_kind(job): (job.model, job.max_workers, job.max_servers) for job in jobs}
        grids = {}
        for kind, (model, workers, servers) in kinds.items():
            grids[kind] = np.zeros((servers + 1, workers + 1))
            grids[kind][servers, workers] = self.speed_alone(model, workers, servers)
        own = [replace(job, model=_kind(job)) for job in jobs]
        arguments = own, named(self.machines), Speeds(grids), self.workload.interval_seconds
        return hard_bound(*arguments), lp_bound(*arguments)


def _kind(job: Job) -> str:
    return f"{job.model}-{job.max_workers}w-{job.max_servers}s"
