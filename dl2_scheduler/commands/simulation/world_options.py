"""This module says where placement policies are compared: the options of a world and its scenario."""

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.live_view import plain_hardware
from dl2_scheduler.cluster.hardware.machines import CPU, GPU, HARMONY, Floats, Hardware, Machines, amounts
from dl2_scheduler.cluster.hardware.measured_table import read_table
from dl2_scheduler.cluster.hardware.placements import PlacedSpeed, PlacementArrays
from dl2_scheduler.cluster.hardware.profiles import HARMONY_MODELS, PUBLISHED
from dl2_scheduler.cluster.hardware.topologies.flat import flat_of
from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.sim.arrivals import Pattern
from dl2_scheduler.sim.placed.formula.clusters import NetworkType, ServerType
from dl2_scheduler.sim.placed.measured.shipped_table import shipped_table
from dl2_scheduler.sim.placed.measured.world import measured_scenario
from dl2_scheduler.sim.placed.scenario import Scenario
from dl2_scheduler.sim.placed.workloads import Workload
from dl2_scheduler.sim.placed.worlds import WorldType, make_world
from dl2_scheduler.sim.trace import parse_cluster
from elastic_ps.system.terminal import say

_SLOTS = "slots"  # of virtual nodes: each is a cpu to a placement policy
_HARMONY_LOAD, _GRAPH_LOAD, _MEASURED_LOAD = 2.0, 15.0, 1.0
_MOST_SEQUENCES = 10_000


class ScenarioName(StrEnum):
    """A `ScenarioName` is a cluster of a paper, with the jobs that come to it."""

    HARMONY = "harmony"
    FAT_TREE = "fat-tree"
    VL2 = "vl2"
    BCUBE = "bcube"


@dataclass(frozen=True)
class WorldOptions:
    """`WorldOptions` say where placements are compared: they are read where `--world` is given."""

    world: Annotated[
        WorldType | None, typer.Option(help="Jobs' speeds depend on their places, as in this world; instead of traces.")
    ] = None
    scenario: Annotated[
        ScenarioName, typer.Option(help="Six servers of Harmony (others by --cluster), or a small network.")
    ] = ScenarioName.HARMONY
    load: Annotated[
        float | None,
        typer.Option(help="Jobs an interval [2; measured 1]; in a network, of 100 servers [15].", show_default=False),
    ] = None
    pattern: Annotated[Pattern, typer.Option(help="Of arrivals.")] = Pattern.UNIFORM
    server_type: Annotated[ServerType, typer.Option(help="Of a network's servers, as the paper numbers them.")] = (
        ServerType.DEFAULT
    )
    oversubscription: Annotated[float, typer.Option(help="Of a network's links above the servers.")] = 1.0
    full_size: Annotated[bool, typer.Option("--full-size", help="A network of the paper's size.")] = False
    table: Annotated[
        Path | None, typer.Option(help="Measured placements that --world measured plays; left out: those shipped.")
    ] = None
    world_seed: Annotated[int, typer.Option(min=0, help="Of the network, and of what formulas leave open.")] = 0
    sequences: Annotated[int, typer.Option(min=1, max=_MOST_SEQUENCES, help="Of jobs, each with a seed.")] = 10
    seed: Annotated[int, typer.Option(min=0, help="Of the first sequence.")] = 0

    def setting(self, cluster: str | None) -> Scenario:
        """Return the scenario.

        Args:
            cluster: its nodes, as `--cluster` says; None: the paper's.

        Raises:
            BadInput: options contradict each other, or are wrong.
        """
        if self.world is None:
            raise BadInput("give --world too: a placement policy matters where speeds depend on places")
        network = self.scenario is not ScenarioName.HARMONY
        alone = {"--oversubscription": self.oversubscription != 1.0, "--full-size": self.full_size}
        alone["--server-type"] = self.server_type is not ServerType.DEFAULT
        if wrong := [name for name, given in alone.items() if given and not network]:
            raise BadInput(f"{', '.join(wrong)}: of a network's scenario: give --scenario fat-tree, vl2 or bcube too")
        if network and cluster is not None:
            raise BadInput(f"--cluster: {self.scenario} has servers of its own: leave it out")
        if not 1.0 <= self.oversubscription < float("inf"):
            raise BadInput(f"--oversubscription is {self.oversubscription}: give a number from 1 on")
        if self.table is not None and self.world is not WorldType.MEASURED:
            raise BadInput("--table: of --world measured: give that, or leave it out")
        if self.world is WorldType.MEASURED:
            if network:
                raise BadInput(f"--scenario {self.scenario}: what was measured has no network: leave it out")
            return self._measured(cluster)
        found = self._network() if network else self._harmony(cluster)
        most, where = found.workload.most, (found.machines, found.topology, found.profiles)
        return replace(found, world=make_world(self.world, *where, most, self.world_seed))

    def _measured(self, cluster: str | None) -> Scenario:
        """Return a cluster like the one that was measured; what its table lacks is fitted to it. Raises BadInput."""
        from dl2_scheduler.learning.placement.measured_fit import check_enough, fit_measured  # torch takes seconds

        table = shipped_table() if self.table is None else read_table(self.table)
        check_enough(table.placements)
        machines = None if cluster is None else plain_machines(cluster)
        load = _MEASURED_LOAD if self.load is None else self.load

        def scenario(fitted: PlacedSpeed) -> Scenario:
            return measured_scenario(table, fitted, load, self.pattern, machines)

        jobs = scenario(_Alike()).workload
        for model in jobs.profiles:  # what fits nowhere is told before the fit
            scenario(_Alike()).speed_alone(model, jobs.most, jobs.most)
        say(f"what {len(table.placements)} measured placements do not say is fitted to them", err=True)
        return scenario(fit_measured(table.placements, jobs.profiles, table.groups))

    def _network(self) -> Scenario:
        return Scenario.graph(
            NetworkType(self.scenario.value),
            self.server_type,
            small=not self.full_size,
            oversubscription=self.oversubscription,
            mean=_GRAPH_LOAD if self.load is None else self.load,
            pattern=self.pattern,
            seed=self.world_seed,
        )

    def _harmony(self, cluster: str | None) -> Scenario:
        load = _HARMONY_LOAD if self.load is None else self.load
        found = Scenario.harmony(load, self.pattern)
        if cluster is None:
            return found
        machines = Machines(tuple(map(_hardware, parse_cluster(cluster))))
        profiles = {model: PUBLISHED[model] for model in HARMONY_MODELS}
        return Scenario(
            machines, flat_of(machines), profiles, found.world, Workload(profiles, mean=load, pattern=self.pattern)
        )

    @property
    def seeds(self) -> range:
        """The seeds of the sequences."""
        return range(self.seed, self.seed + self.sequences)


def _hardware(node: Node) -> Hardware:
    """Return a server like Harmony's with other amounts. Raises BadInput: they are of other resources, or no cores."""
    cpus, gpus = amounts(node.capacity)
    threads = HARMONY.sockets[0].threads
    if set(node.capacity) - {CPU, GPU} or cpus < threads or cpus % threads or gpus % 1:
        raise BadInput(f"--cluster: {node.name} has {dict(node.capacity)}: give an even number of cpu, and whole gpu")
    return Hardware((replace(HARMONY.sockets[0], cores=int(cpus) // threads, gpus=int(gpus)),))


class _Alike:
    """See `PlacedSpeed`: all jobs are as fast, so that nothing but their room is looked at."""

    def rates(self, placements: PlacementArrays) -> Floats:
        """See `PlacedSpeed.rates`."""
        return np.ones(len(placements.model))


def plain_machines(cluster: str) -> Machines:
    """Return nodes about which no more is known than what they have, a slot being a cpu. Raises BadInput."""
    return Machines(tuple(map(_plain, parse_cluster(cluster))))


def _plain(node: Node) -> Hardware:
    """Return a node about which no more is known than what it has. Raises BadInput."""
    cpus, gpus = cpus_and_gpus(node, "--cluster")
    if cpus < 1 or cpus % 1 or gpus % 1:
        raise BadInput(
            f"--cluster: {node.name} has {dict(node.capacity)}: give whole numbers, and 1 cpu or slot at least"
        )
    return plain_hardware(cpus, gpus)


def cpus_and_gpus(node: Node, option: str) -> tuple[float, float]:
    """Return what a node has, a slot being a cpu.

    Args:
        node: whatever has amounts.
        option: that said so, for people.

    Raises:
        BadInput: it has something else.
    """
    if set(node.capacity) - {CPU, GPU, _SLOTS} or {CPU, _SLOTS} <= set(node.capacity):
        raise BadInput(f"{option}: {dict(node.capacity)}: give cpu or slots, and gpu where there are any")
    cpus, gpus = amounts(node.capacity)
    return cpus + node.capacity.get(_SLOTS, 0.0), gpus
