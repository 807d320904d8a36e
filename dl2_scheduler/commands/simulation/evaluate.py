"""This module is `dl2 evaluate`: it compares policies side by side on the same traces."""

import glob
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.commands.common import Json, new_table, show, show_json
from dl2_scheduler.commands.simulation.placed import PlacedQuestion, evaluate_in_world
from dl2_scheduler.commands.simulation.pool import PoolOptions, evaluate_in_pool, pool_question
from dl2_scheduler.commands.simulation.setting_options import check_setting_options
from dl2_scheduler.commands.simulation.simulated import SimulationOptions
from dl2_scheduler.commands.simulation.world_options import WorldOptions
from dl2_scheduler.policies.registry import make_policy, rule_of
from dl2_scheduler.sim.evaluate import Bounds, Contender, Result, bounds, compare
from dl2_scheduler.sim.metrics import Estimate
from dl2_scheduler.sim.trace import DEFAULT_CLUSTER, read_lines
from elastic_ps.system.option_groups import grouped
from elastic_ps.system.terminal import say

_JCT = "jct_slots.mean"


@grouped
def evaluate(
    context: typer.Context,
    policies: Annotated[
        str | None, typer.Option(help="Names, joined by commas; the first is the baseline.", show_default=False)
    ] = None,
    traces: Annotated[
        list[str] | None, typer.Option(help="Trace, or a pattern of several as in 'val/*.jsonl'; may repeat.")
    ] = None,
    *,
    simulated: SimulationOptions,
    placed: WorldOptions,
    pooled: PoolOptions,
    with_bounds: Annotated[bool, typer.Option("--bounds", help="Also what no scheduler can beat.")] = False,
    as_json: Json = False,
) -> None:
    """Compare policies on the same traces: completion time, makespan, fairness, utilisation.

    With --world it is placement policies that are compared, those of --placement, joined by commas; with --pool
    policies may be asked when jobs arrive and end.
    """
    check_setting_options(context, placed.world is not None, pooled.pool is not None)
    if placed.world is not None:
        asked = PlacedQuestion(placed, simulated.cluster, simulated.placement, policies, as_json)
        evaluate_in_world(asked, with_bounds, _progress)
        return
    if pooled.pool is not None:
        question = pool_question(context, pooled, simulated, placed.seeds, policies, as_json)
        evaluate_in_pool(question, with_bounds, _progress)
        return
    if policies is None or not traces:
        raise BadInput("give --policies and --traces, or --world, or --pool")
    read = {path: read_lines(path) for path in _paths(traces)}
    lines = {where: job for each in read.values() for where, job in each.items()}
    setting = simulated.setting(lines)
    contenders = _contenders(policies, setting.speeds, simulated.rule)
    sequences: dict[str, list[Job]] = {str(path): list(each.values()) for path, each in read.items()}
    with _progress(len(sequences) * (len(contenders) + with_bounds)) as tell:
        results = compare(contenders, sequences, setting, tell)
        least = bounds(sequences, setting, tell) if with_bounds else None
    if as_json:
        where = {"cluster": simulated.cluster or DEFAULT_CLUSTER, "slot_seconds": setting.slot_seconds}
        show_json({**where, "cost": asdict(setting.cost), **_document(results, least)})
    else:
        count = len(sequences)
        say(f"{count} trace{'s' if count > 1 else ''}, {len(setting.nodes)} nodes; mean ± half the 95% interval")
        show(_table(results, least))


def _paths(patterns: Sequence[str]) -> list[Path]:
    """Return the traces that patterns mean, in alphabetical order."""
    paths: set[Path] = set()
    for pattern in patterns:
        found = glob.glob(pattern, recursive=True)
        if not found:
            raise BadInput(f"--traces {pattern}: no such file: give the path of a trace, or a pattern in quotes")
        paths.update(map(Path, found))
    return sorted(paths)


def _contenders(names: str, speeds: Speeds, asked: NodeRule) -> list[Contender]:
    contenders: dict[str, Contender] = {}
    for name in (each.strip() for each in names.split(",")):
        if name in contenders:
            raise BadInput(f"--policies: {name} again: give each policy once")
        make_policy(name, speeds)  # an unknown name is told before anything runs
        contenders[name] = Contender(name, partial(make_policy, name, speeds), rule_of(name, asked))
    return list(contenders.values())


@contextmanager
def _progress(runs: int) -> Iterator[Callable[[str], None]]:
    """Show a bar on stderr, where a person looks at it."""
    columns = TextColumn("{task.description}"), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("", total=runs)
        yield lambda name: progress.update(task, advance=1, description=name)


def _table(results: Sequence[Result], least: Bounds | None) -> Table:
    first = results[0]
    resources = [name.partition(".")[2] for name in first.numbers if name.startswith("utilisation.")]
    heads = ["JCT, slots", f"vs {first.name}", "", "median", "p95", "makespan, slots", "fairness", *resources]
    table = new_table(policy=False, **dict.fromkeys([*heads, "scalings"], True))
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
