"""Every benchmark writes this: build/bench/NAME.json, and a table with its goals for the person who ran it."""

import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn

from rich import box
from rich.console import Console
from rich.table import Table

from elastic_ps.system.process.descendants import descendants_end_with_me

FOLDER = Path("build/bench")


@dataclass(frozen=True)
class BenchmarkGoal:
    """A promise and what was measured.

    Attributes:
        name: what it is about.
        goal: the promise in words, with its unit.
        value: measured, in that unit.
        met: whether it holds.
    """

    name: str
    goal: str
    value: float
    met: bool


def under(name: str, limit: float, value: float, unit: str) -> BenchmarkGoal:
    """Return a goal of staying below a limit.

    Args:
        name: what it is about.
        limit: not reached.
        value: measured.
        unit: of both.
    """
    return BenchmarkGoal(name, f"under {limit:g} {unit}", round(value, 4), value < limit)


def at_most(name: str, limit: float, value: float, unit: str) -> BenchmarkGoal:
    """Return a goal of not passing a limit.

    Args:
        name: what it is about.
        limit: not passed.
        value: measured.
        unit: of both.
    """
    return BenchmarkGoal(name, f"at most {limit:g} {unit}", round(value, 4), value <= limit)


def at_least(name: str, limit: float, value: float, unit: str) -> BenchmarkGoal:
    """Return a goal of reaching a limit.

    Args:
        name: what it is about.
        limit: reached.
        value: measured.
        unit: of both.
    """
    return BenchmarkGoal(name, f"at least {limit:g} {unit}", round(value, 4), value >= limit)


def as_program(main: Callable[[], int]) -> NoReturn:
    """Run a benchmark as a program of its own. The jobs that it starts end with it, however that ends."""
    descendants_end_with_me()
    sys.exit(main())


def machine() -> dict[str, Any]:
    """Return what the numbers were measured on."""
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
    }


def finish(
    name: str, rows: Sequence[Mapping[str, Any]], goals: Sequence[BenchmarkGoal], packages: Sequence[str] = ()
) -> int:
    """Print the rows and goals, write build/bench/NAME.json.

    Args:
        name: of the benchmark.
        rows: one measurement each; those in turn that have the same keys, the columns, are one table.
        goals: what was promised.
        packages: whose versions matter, beside Python's.

    Returns:
        Exit status: 1 where a goal is missed.
    """
    versions = {"python": platform.python_version(), **{package: version(package) for package in packages}}
    document = {
        "machine": machine(),
        "versions": versions,
        "rows": [dict(row) for row in rows],
        "goals": [asdict(goal) for goal in goals],
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(document, indent=2) + "\n")
    console = Console(width=None if sys.stdout.isatty() else 160, markup=False, highlight=False)
    for _, some in groupby(rows, key=list):
        console.print(_table(list(some)))
    for goal in goals:
        console.print(f"{'met   ' if goal.met else 'MISSED'}  {goal.name}: {goal.value:g} (goal: {goal.goal})")
    console.print(f"written to {path}")
    return 0 if all(goal.met for goal in goals) else 1


def finish_each(
    name: str,
    results: Iterable[tuple[Mapping[str, Any], Sequence[BenchmarkGoal]]],
    packages: Sequence[str] = (),
) -> int:
    """Measure one result after the other, and `finish` after each: who is interrupted has what was measured.

    Args:
        name: of the benchmark.
        results: rows with their goals, measured when they are asked for.
        packages: see `finish`.

    Returns:
        Exit status: 1 where a goal is missed, or nothing was measured.
    """
    rows: list[Mapping[str, Any]] = []
    goals: list[BenchmarkGoal] = []
    status = 1
    for row, its_goals in results:
        rows.append(row)
        goals += its_goals
        status = finish(name, rows, goals, packages)
    return status


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    columns = list(rows[0]) if rows else []
    for column in columns:
        table.add_column(column, justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows:
        table.add_row(*(_text(row[column]) for column in columns))
    return table


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def cpu_model() -> str:
    """Return what the kernel calls the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
