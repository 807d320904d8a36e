"""This module holds what commands that simulate share: options, the speeds that a trace needs, refusals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.policies.placement.node_rules import SPREAD, placement_rule
from dl2_scheduler.policies.placement.registry import is_policy_name
from dl2_scheduler.sim.evaluate import Setting
from dl2_scheduler.sim.lanes import MEASURED, ScalingCost
from dl2_scheduler.sim.shipped import shipped_speeds
from dl2_scheduler.sim.simulator import check_jobs, check_length
from dl2_scheduler.sim.speeds import interpolated, read_points
from dl2_scheduler.sim.trace import DEFAULT_CLUSTER, parse_cluster
from dl2_scheduler.sim.variation import Variation

Cluster = Annotated[
    str | None,
    typer.Option(help=f"Nodes, as in 4x8cpu,8gpu, or a file of them; left out: {DEFAULT_CLUSTER}.", show_default=False),
]
SpeedTable = Annotated[Path | None, typer.Option(help="Speed table; left out: the shipped speeds.")]
Slot = Annotated[float, typer.Option(help="Seconds of a slot.")]

StartCost = Annotated[float, typer.Option(help="Seconds that a job loses where it starts; the paper: 0.")]
ChangeCost = Annotated[float, typer.Option(help="Seconds that it loses where its counts change; the paper: 0.")]
JoinCost = Annotated[float, typer.Option(help="Seconds that it trains on as it was where it is given more.")]
Placement = Annotated[
    str, typer.Option(help="spread, pack or round-robin; with --world a placement policy: a wrong one lists them.")
]
SpeedVariation = Annotated[float, typer.Option(help="Part by which jobs' speeds deviate from their models'.")]
VariationSeed = Annotated[int, typer.Option(help="Of the speeds' deviations.")]


@dataclass(frozen=True)
class CostOptions:
    """`CostOptions` say what it costs a simulated job to be scaled."""

    start_cost: StartCost = MEASURED.start
    change_cost: ChangeCost = MEASURED.change
    join_cost: JoinCost = MEASURED.join

    @property
    def cost(self) -> ScalingCost:
        """The cost of scaling. Raises BadInput."""
        start, change, join = self.start_cost, self.change_cost, self.join_cost
        if not (math.isfinite(start + change + join) and min(start, change, join) >= 0):
            raise BadInput(
                f"--start-cost is {start}, --join-cost {join}, --change-cost {change}: give seconds from 0 on"
            )
        return ScalingCost(start, change, join)


@dataclass(frozen=True)
class SimulationOptions:
    """`SimulationOptions` say what is simulated."""

    cluster: Cluster = None
    speeds: SpeedTable = None
    slot: Slot = 1200.0
    placement: Placement = SPREAD
    start_cost: StartCost = MEASURED.start
    change_cost: ChangeCost = MEASURED.change
    join_cost: JoinCost = MEASURED.join
    speed_variation: SpeedVariation = 0.0
    variation_seed: VariationSeed = 0

    @property
    def rule(self) -> NodeRule:
        """The rule by which tasks find their node. Raises BadInput."""
        if is_policy_name(self.placement):
            raise BadInput(f"{self.placement} places tasks where speeds depend on places: give --world too")
        return placement_rule(self.placement)

    @property
    def cost(self) -> ScalingCost:
        """The cost of scaling. Raises BadInput."""
        return CostOptions(self.start_cost, self.change_cost, self.join_cost).cost

    def setting(self, lines: Mapping[str, Job]) -> Setting:
        """Return the setting for these jobs, which can all run in it.

        Args:
            lines: the jobs, as `read_lines` returns them.

        Raises:
            BadInput: an option is wrong, or a job cannot run there, with its path and line.
        """
        if not (math.isfinite(self.slot) and self.slot > 0):
            raise BadInput(f"--slot is {self.slot}: give seconds above 0")
        cost, variation = self.cost, Variation(self.speed_variation, self.variation_seed)
        nodes, known = parse_cluster(self.cluster or DEFAULT_CLUSTER), _speeds_for(lines, self.speeds)
        _check_lines(lines, nodes, known, self.slot, 1 + variation.part)
        return Setting(nodes, known, self.slot, cost, variation)


def is_given(context: typer.Context, name: str) -> bool:
    """Return whether an option was given on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _speeds_for(lines: Mapping[str, Job], table: Path | None) -> Speeds:
    """Return the speeds for what every job can use, and one more of each.

    The published Optimus looks one step beyond.

    Args:
        lines: the jobs, as `read_lines` returns them.
        table: the file of speeds; None: the shipped speeds.

    Raises:
        BadInput: the table is wrong, or a job can use too many tasks.
    """
    servers, workers = 1, 1
    for job in lines.values():
        servers, workers = max(servers, job.max_servers), max(workers, job.max_workers)
    return known_speeds(table, servers + 1, workers + 1)


def known_speeds(table: Path | None, max_servers: int = 16, max_workers: int = 16) -> Speeds:
    """Read the speeds of a table.

    Args:
        table: the file; None: the speeds that are shipped.
        max_servers: up to which speeds are wanted.
        max_workers: up to which speeds are wanted.

    Raises:
        BadInput: the table is wrong, with the line.
    """
    if table is None:
        return shipped_speeds(max_servers, max_workers)
    points = read_points(table)
    try:
        return interpolated(points, max_servers, max_workers)
    except BadInput as error:
        raise BadInput(f"{table}: {error}") from error


def _check_lines(
    lines: Mapping[str, Job], nodes: Sequence[Node], speeds: Speeds, slot_seconds: float, fastest: float
) -> None:
    """Refuse jobs that cannot run there. Raises BadInput, with path, line and job.

    Args:
        lines: the jobs, as `read_lines` returns them.
        nodes: machines.
        speeds: the speeds of models.
        slot_seconds: length of a slot.
        fastest: see `check_length`.
    """
    for where, job in lines.items():
        try:
            check_jobs([job], nodes, speeds)
            check_length(job, speeds, slot_seconds, fastest)
        except BadInput as error:
            raise BadInput(f"{where}: {error}") from error
