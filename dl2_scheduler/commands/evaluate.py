"""`dl2 evaluate`: policies side by side on the same traces."""

import glob
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.policies.placement import SPREAD, placement_rule
from dl2_scheduler.policies.registry import make_policy, rule_of
from dl2_scheduler.sim.evaluate import Bounds, Contender, Result, Sequences, Setting, bounds, compare
from dl2_scheduler.sim.lanes import ScalingCost
from dl2_scheduler.sim.metrics import Estimate
from dl2_scheduler.sim.shipped import shipped_speeds
from dl2_scheduler.sim.speeds import interpolated, read_points
from dl2_scheduler.sim.trace import DEFAULT_CLUSTER, parse_cluster, read_trace

_PIPE_WIDTH = 200
_JCT = "jct_slots.mean"


def evaluate(
    policies: Annotated[str, typer.Option(help="Names, joined by commas; the first is the baseline.")],
    traces: Annotated[list[str], typer.Option(help="Trace, or a pattern of several as in 'val/*.jsonl'; may repeat.")],
    cluster: Annotated[str, typer.Option(help="Nodes, as in 96x8cpu,8gpu, or a file of them.")] = DEFAULT_CLUSTER,
    speeds: Annotated[Path | None, typer.Option(help="Speed table; left out: the shipped speeds.")] = None,
    slot: Annotated[float, typer.Option(help="Seconds of a slot.")] = 1200.0,
    placement: Annotated[str, typer.Option(help="spread, pack or round-robin.")] = SPREAD,
    start_cost: Annotated[float, typer.Option(help="Seconds that a job loses where it starts.")] = 0.0,
    change_cost: Annotated[float, typer.Option(help="Seconds that a job loses where its counts change.")] = 0.0,
    with_bounds: Annotated[bool, typer.Option("--bounds", help="Also what no scheduler can beat.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Compare policies on the same traces: completion time, makespan, fairness, utilisation."""
    if not (math.isfinite(slot) and slot > 0):
        raise BadInput(f"--slot is {slot}: give seconds above 0")
    if not (math.isfinite(start_cost + change_cost) and min(start_cost, change_cost) >= 0):
        raise BadInput(f"--start-cost is {start_cost}, --change-cost {change_cost}: give seconds from 0 on")
    sequences = _read(traces)
    setting = Setting(parse_cluster(cluster), _speeds(speeds, sequences), slot, ScalingCost(start_cost, change_cost))
    contenders = _contenders(policies, setting.speeds, placement)
    with _progress(len(sequences) * (len(contenders) + with_bounds)) as tell:
        results = compare(contenders, sequences, setting, tell)
        least = bounds(sequences, setting, tell) if with_bounds else None
    if as_json:
        print(json.dumps(_document(results, least), indent=2))
    else:
        console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, markup=False, highlight=False)
        console.print(_table(results, least))


def _read(patterns: Sequence[str]) -> Sequences:
    """The traces that patterns mean, in alphabetical order."""
    paths = []
    for pattern in patterns:
        found = glob.glob(pattern, recursive=True)
        if not found:
            raise BadInput(f"--traces {pattern}: no such file: give the path of a trace, or a pattern in quotes")
        paths += found
    return {path: read_trace(Path(path)) for path in sorted(set(paths))}


def _speeds(path: Path | None, sequences: Sequences) -> Speeds:
    """For what every job can use, and one more of each: the published Optimus looks one step beyond."""
    jobs: list[Job] = [job for sequence in sequences.values() for job in sequence]
    most = max(job.max_servers for job in jobs) + 1, max(job.max_workers for job in jobs) + 1
    return shipped_speeds(*most) if path is None else interpolated(read_points(path), *most)


def _contenders(names: str, speeds: Speeds, placement: str) -> list[Contender]:
    asked = placement_rule(placement)
    contenders: dict[str, Contender] = {}
    for name in (each.strip() for each in names.split(",")):
        if name in contenders:
            raise BadInput(f"--policies: {name} again: give each policy once")
        make_policy(name, speeds)  # an unknown name is told before anything runs
        contenders[name] = Contender(name, partial(make_policy, name, speeds), rule_of(name, asked))
    return list(contenders.values())


@contextmanager
def _progress(runs: int) -> Iterator[Callable[[str], None]]:
    """A bar on stderr, where a person looks at it."""
    columns = TextColumn("{task.description}"), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("", total=runs)
        yield lambda name: progress.update(task, advance=1, description=name)


def _table(results: Sequence[Result], least: Bounds | None) -> Table:
    first = results[0]
    count = len(first.runs)
    title = f"{count} trace{'s' if count > 1 else ''}; mean ± half the 95% interval"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("policy")
    resources = [name.partition(".")[2] for name in first.numbers if name.startswith("utilisation.")]
    heads = ["JCT, slots", f"less {first.name}", "", "median", "p95", "makespan, slots", "fairness"]
    for head in [*heads, *resources, "scalings"]:
        table.add_column(head, justify="right")
    for result in results:
        table.add_row(result.name, *_cells(result, first, resources))
    if least:
        table.add_row("LP bound", _text(least.lp))
        table.add_row("hard bound", _text(least.hard))
    return table


def _cells(result: Result, first: Result, resources: Sequence[str]) -> Iterator[str]:
    numbers, difference = result.numbers, result.differences[_JCT]
    yield _text(numbers[_JCT])
    yield "" if result is first else _text(difference, "+.2f")
    yield "" if result is first else f"{difference.mean / first.numbers[_JCT].mean:+.1%}"
    yield f"{numbers['jct_slots.median'].mean:.1f}"
    yield f"{numbers['jct_slots.p95'].mean:.1f}"
    yield _text(numbers["makespan_slots"], ".1f")
    yield f"{numbers['fairness'].mean:.3f}"
    for name in resources:
        yield f"{numbers[f'utilisation.{name}'].mean:.0%}"
    yield f"{numbers['scalings'].mean:.3f}"


def _text(value: Estimate, form: str = ".2f") -> str:
    return f"{value.mean:{form}}" + ("" if value.margin is None else f" ± {value.margin:{form.lstrip('+')}}")


def _document(results: Sequence[Result], least: Bounds | None) -> dict[str, Any]:
    policies = [
        {
            "name": result.name,
            "numbers": {name: asdict(value) for name, value in result.numbers.items()},
            "differences": {name: asdict(value) for name, value in result.differences.items()},
            "traces": {name: run.values() for name, run in result.runs.items()},
        }
        for result in results
    ]
    return {"policies": policies, "bounds": None if least is None else asdict(least)}
