"""What several commands of `dl2` share: options, the speeds that a trace needs, how things are printed."""

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.sim.lanes import ScalingCost
from dl2_scheduler.sim.shipped import shipped_speeds
from dl2_scheduler.sim.simulator import check_jobs
from dl2_scheduler.sim.speeds import interpolated, read_points

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Cluster = Annotated[str, typer.Option(help="Nodes, as in 96x8cpu,8gpu, or a file of them.")]
SpeedTable = Annotated[Path | None, typer.Option(help="Speed table; left out: the shipped speeds.")]
Slot = Annotated[float, typer.Option(help="Seconds of a slot.")]

Folder = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Of the cluster's state; left out: ~/.local/state/dl2.")
]

StartCost = Annotated[float, typer.Option(help="Seconds that a job loses where it starts; the paper: 0.")]
ChangeCost = Annotated[float, typer.Option(help="Seconds that it loses where its counts change; the paper: 0.")]
SpeedVariation = Annotated[float, typer.Option(help="Part by which jobs' speeds deviate from their models'.")]
VariationSeed = Annotated[int, typer.Option(help="Of the speeds' deviations.")]

MOST_TASKS = 256
"""Of one role that a job in a simulation may use: a speed is kept for every pair of counts."""

_PIPE_WIDTH = 200


def default_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Of the cluster's state: $XDG_STATE_HOME/dl2, by default under ~/.local/state."""
    return Path(environment.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "dl2"


def speeds_for(lines: Mapping[str, Job], table: Path | None) -> Speeds:
    """For what every job can use, and one more of each: the published Optimus looks one step beyond.

    Args:
        lines: of `read_lines`.
        table: of speeds; None: the shipped ones.

    Raises:
        BadInput: the table is wrong, or a job can use too many tasks.
    """
    servers, workers = 1, 1
    for where, job in lines.items():
        if max(job.max_servers, job.max_workers) > MOST_TASKS:
            raise BadInput(f"{where}: job {job.id}: max_servers or max_workers over {MOST_TASKS}: give less")
        servers, workers = max(servers, job.max_servers), max(workers, job.max_workers)
    return known_speeds(table, servers + 1, workers + 1)


def known_speeds(table: Path | None, max_servers: int = 16, max_workers: int = 16) -> Speeds:
    """Of a table; None: the shipped ones. Raises BadInput, with the line."""
    if table is None:
        return shipped_speeds(max_servers, max_workers)
    return interpolated(read_points(table), max_servers, max_workers)


def scaling_cost(start: float, change: float) -> ScalingCost:
    """Of `StartCost` and `ChangeCost`. Raises BadInput."""
    if not (math.isfinite(start + change) and min(start, change) >= 0):
        raise BadInput(f"--start-cost is {start}, --change-cost {change}: give seconds from 0 on")
    return ScalingCost(start, change)


def check_lines(lines: Mapping[str, Job], nodes: Sequence[Node], speeds: Speeds) -> None:
    """Refuse jobs that cannot run there. Raises BadInput, with path, line and job.

    Args:
        lines: of `read_lines`.
        nodes: machines.
        speeds: of models.
    """
    for where, job in lines.items():
        try:
            check_jobs([job], nodes, speeds)
        except BadInput as error:
            raise BadInput(f"{where}: {error}") from error


def new_table(**columns: bool) -> Table:
    """A table with these heads; True: of numbers. An underscore stands for a space."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for head, is_number in columns.items():
        table.add_column(head.replace("_", " "), justify="right" if is_number else "left")
    return table


def show(view: RenderableType) -> None:
    """Print on stdout: as wide as the terminal, or wide where it is piped, so that no table is cut."""
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False).print(view)


def show_json(value: Any) -> None:
    """Print JSON on stdout."""
    typer.echo(json.dumps(value, indent=2))
