"""What a run of faults came to: a table of role x phase x fault, and a summary for programs."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.table import Table

from tests.chaos.result import Result
from tests.world.cells import PHASES

GOOD = "recovered"
"""The one outcome that is no failure."""

TIMES = ("trained", "stood", "whole", "planned")
"""Of a result, that are summed up."""


def table(results: Sequence[Result]) -> Table:
    """One row for each role and fault, one column for each phase: how many came back of how many, and how fast."""
    found: dict[tuple[str, str], dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        found[result.role, result.kind][result.phase].append(result)
    drawn = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column in ("of", "fault", *PHASES, "all"):
        drawn.add_column(column, justify="left" if column in ("of", "fault") else "right")
    for (role, kind), by_phase in sorted(found.items()):
        every = [result for some in by_phase.values() for result in some]
        drawn.add_row(role, kind, *(_cell(by_phase[phase]) for phase in PHASES), _cell(every))
    drawn.add_row(
        "all", "", *(_cell([each for each in results if each.phase == phase]) for phase in PHASES), _cell(results)
    )
    return drawn


def _cell(results: Sequence[Result]) -> str:
    """As "3/3 1.2 4.5": that came back, of how many; median and longest seconds until the job trained."""
    if not results:
        return ""
    good = [result for result in results if result.outcome == GOOD]
    share = str(len(results)) if len(good) == len(results) else f"{len(good)}/{len(results)}"
    seconds = times(good, "trained")
    return f"{share}: {seconds['median']:.1f} {seconds['max']:.1f}" if seconds else f"{share}:"


def times(results: Sequence[Result], which: str) -> dict[str, float]:
    """Median and longest of one of the times of results that have it; empty where none has."""
    found = [value for result in results if (value := getattr(result, which)) is not None]
    return {"median": round(statistics.median(found), 2), "max": round(max(found), 2)} if found else {}


def summary(results: Sequence[Result], goals: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """For programs: counts by outcome, times by kind of fault, and every result."""
    kinds: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        kinds[f"{result.role} {result.kind}{' for ever' if result.lasting else ''}"].append(result)
    return {
        "goals": list(goals),
        "outcomes": dict(Counter(result.outcome for result in results)),
        "protected": sum(result.protected for result in results),
        "kinds": {
            kind: {"faults": len(some), **{which: times(some, which) for which in TIMES}}
            for kind, some in sorted(kinds.items())
        },
        "rows": [asdict(result) for result in sorted(results, key=lambda result: result.number)],
    }
