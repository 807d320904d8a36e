"""What several runs came to: `python -m tests.world.together OUTPUT...` sums what each has printed, as one table.

python -m tests.world --seeds 0-500 > build/a.txt
python -m tests.world --seeds 500-1000 > build/b.txt
python -m tests.world.together build/a.txt build/b.txt
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from tests.world.faults import coverage
from tests.world.faults.cells import PHASES, ROWS, SERVERLESS_PHASES, SERVERLESS_ROWS, Cell

_SUMMARY = re.compile(r"(\d+) jobs, (\d+) steps, (\d+) faults, (\d+) failed; (\d+) jobs a CPU minute")
_BESIDES = re.compile(r"(\d+) besides, in no cell")
_ALONE = re.compile(r"(\d+) faults came alone")
_AGAIN = re.compile(r"at \S.*: python -m tests.world --seed \d+")
_ROLES = {role or "the job": role for _, role in (*ROWS, *SERVERLESS_ROWS)}


@dataclass
class Sum:
    """A `Sum` is what runs came to together.

    Attributes:
        hits: of each cell, in jobs with servers.
        serverless: likewise, in jobs without.
        jobs: that ran.
        steps: of theirs.
        faults: that they met.
        failed: of the jobs.
        alone: faults that came alone, while each block had a follower.
        minutes: of a core that they took.
        again: a command for each job that failed.
    """

    hits: Counter[Cell] = field(default_factory=Counter)
    serverless: Counter[Cell] = field(default_factory=Counter)
    jobs: int = 0
    steps: int = 0
    faults: int = 0
    failed: int = 0
    alone: int = 0
    minutes: float = 0.0
    again: list[str] = field(default_factory=list)

    def add(self, lines: Iterable[str]) -> None:
        """Add what a run has printed, or nothing of one that has not ended."""
        rows: Counter[Cell] = Counter()
        serverless: Counter[Cell] = Counter()
        alone = besides = 0
        for line in lines:
            rows.update(_row(line, PHASES))
            serverless.update(_row(line, SERVERLESS_PHASES))
            if found := _ALONE.match(line):
                alone = int(found[1])
            elif found := _BESIDES.match(line):
                besides += int(found[1])
            elif found := _SUMMARY.match(line):
                jobs, steps, faults, failed, rate = map(int, found.groups())
                if (total := rows.total() + serverless.total() + besides) != faults:
                    raise ValueError(f"the run says that it made {faults} faults, and its table has {total}")
                self.hits += rows
                self.serverless += serverless
                self.jobs, self.steps, self.faults = self.jobs + jobs, self.steps + steps, self.faults + faults
                self.failed, self.alone, self.minutes = (
                    self.failed + failed,
                    self.alone + alone,
                    self.minutes + jobs / rate,
                )
            elif _AGAIN.match(line):
                self.again.append(line)


def _row(line: str, phases: Sequence[str]) -> dict[Cell, int]:
    """Return what a line of the coverage table of these phases says, or nothing of another line."""
    role, *words = re.split(r" {2,}", line.strip())
    if role not in _ROLES or len(words) != len(phases) + 2:
        return {}
    kind, *counts = words
    return {
        (_ROLES[role], phase, kind): int(count)
        for phase, count in zip(phases, counts[:-1], strict=True)
        if count != coverage.CANNOT
    }


def main() -> None:
    """Print it."""
    together = Sum()
    for path in sys.argv[1:]:
        together.add(Path(path).read_text().splitlines())
    for serverless, hits in enumerate((together.hits, together.serverless)):
        if hits:
            print("jobs without servers:" if serverless else "jobs with servers:")
            Console(width=140).print(coverage.table(hits.elements(), bool(serverless)))
    rate = together.jobs / together.minutes if together.minutes else 0.0
    print(f"{together.alone} faults came alone while every block had a follower")
    print(
        f"{together.jobs} jobs, {together.steps} steps, {together.faults} faults, {together.failed} failed; "
        f"{rate:.0f} jobs a CPU minute, {together.steps / 100 / (together.minutes or 1):.0f} times 100 steps"
    )
    for line in together.again:
        print(line)


if __name__ == "__main__":
    main()
