"""What several runs came to: `python -m tests.chaos.together SUMMARY.json...` prints a Markdown table of them all."""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from tests.chaos.result import Result
from tests.chaos.table import GOOD, times

_KNOWN = {field.name for field in fields(Result)}
_HEAD = (
    "| of | fault | faults | came back | longest time without a step, median | most | whole again, median | most |\n"
    "|---|---|---|---|---|---|---|---|"
)


def results_of(summaries: Iterable[dict[str, Any]]) -> list[Result]:
    """Return every result of some runs."""
    return [Result(**{key: row[key] for key in row.keys() & _KNOWN}) for each in summaries for row in each["rows"]]


def lines(results: Sequence[Result]) -> Iterator[str]:
    """Yield a table of the kinds of fault, and of the phases, and what protected jobs paid for single faults."""
    kinds: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        kinds[result.role, result.name].append(result)
    yield _HEAD
    for (role, name), some in sorted(kinds.items()):
        yield f"| {role} | {name} | {_counts(some)} |"
    yield f"| all | | {_counts(results)} |"
    yield ""
    for which, some in (
        ("single faults of protected jobs", [result for result in results if result.protected]),
        ("servers killed in protected jobs", [each for each in results if each.protected and _is_death(each)]),
        (
            "servers killed in jobs without replicas",
            [each for each in results if not each.replicas and _is_death(each)],
        ),
    ):
        restored = sum(bool(result.restored) for result in some)
        yield f"{which}: {len(some)}, of which {restored} cost a restore; stood {times(some, 'stood')}"


def _is_death(result: Result) -> bool:
    return (result.role, result.kind) == ("server", "kill")


def _counts(some: Sequence[Result]) -> str:
    good = [result for result in some if result.outcome == GOOD]
    figures = [times(good, which) for which in ("stood", "whole")]
    seconds = [f"{each[of]:.1f}" if each else "" for each in figures for of in ("median", "max")]
    return " | ".join([str(len(some)), str(len(good)), *seconds])


def main() -> None:
    """Print it."""
    for line in lines(results_of(json.loads(Path(path).read_text()) for path in sys.argv[1:])):
        print(line)


if __name__ == "__main__":
    main()
