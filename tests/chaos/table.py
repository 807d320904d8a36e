"""What a run of faults came to: a table of role x phase x fault, and a summary for programs."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from tests.chaos.result import Result
from tests.world.faults.cells import PHASES, Cell
from tests.world.faults.coverage import grid

GOOD = "recovered"
"""The one outcome that is no failure."""

TIMES = ("trained", "stood", "whole", "planned")
"""Of a result, that are summed up."""

_WHY_LETTERS = 2000


def table(results: Sequence[Result]) -> Table:
    """One row for each role and fault, one column for each phase: how many came back of how many, and how fast."""
    found: dict[Cell, list[Result]] = defaultdict(list)
    for result in results:
        found[result.role, result.phase, result.name].append(result)

    def field(some: Sequence[Cell]) -> str:
        return _field([result for cell in some for result in found.get(cell, ())])

    drawn = grid({(role, name) for role, _, name in found}, field)
    phases = ([result for result in results if result.phase == phase] for phase in PHASES)
    drawn.add_row("all", "", *map(_field, phases), _field(results))
    return drawn


def _field(results: Sequence[Result]) -> str:
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


def failures(results: Sequence[Result]) -> Iterator[str]:
    """Yield a line for each fault that its job did not come back from: of a long log often the end alone is kept."""
    for result in results:
        if result.outcome != GOOD:
            why = " ".join(result.why.split())
            yield f"FAILED  {result.outcome}: {result.fault} ({result.met}), job {result.job}: {why[:_WHY_LETTERS]}"


def summary(results: Sequence[Result], goals: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """For programs: counts by outcome, times by kind of fault, and every result."""
    kinds: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        kinds[f"{result.role} {result.name}"].append(result)
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
