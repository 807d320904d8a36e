"""What seeds came to: one result for each, and a table of role x phase x fault over all of them."""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from rich import box
from rich.table import Table

from tests.world import world
from tests.world.draw import PHASES, JobDraw
from tests.world.oracle import Oracle


@dataclass(frozen=True)
class Result:
    """A result is what one world came to.

    Attributes:
        draw: the job.
        failures: what was wrong; none: nothing.
        hits: role, phase and kind of each fault that came about.
        steps: that workers began.
        virtual: seconds in the world.
        real: seconds of a core that it took.
        story: of all processes.
    """

    draw: JobDraw
    failures: tuple[str, ...]
    hits: tuple[tuple[str, str, str], ...]
    steps: int
    virtual: float
    real: float
    story: str

    def __str__(self) -> str:
        job = f"{self.draw.mode}, {self.draw.workers} workers, {self.draw.servers} servers"
        what = f"{self.steps} steps, {len(self.hits)} faults, {self.virtual:.1f} s in {self.real:.2f} s"
        return f"seed {self.draw.seed}: {'; '.join(self.failures) or 'good'} ({job}; {what})"


def play(draw: JobDraw) -> Result:
    """Run one world."""
    began = time.process_time()
    oracle = Oracle(draw)
    ran = world.run(draw, oracle)
    return Result(
        draw,
        tuple(ran.failures),
        tuple(ran.injector.hits),
        oracle.steps,
        ran.scheduler.now,
        time.process_time() - began,
        ran.story.text(),
    )


def table(hits: Iterable[tuple[str, str, str]]) -> Table:
    """Return one row for each role and kind, one column for each phase."""
    found = Counter(hits)
    drawn = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column in ("of", "fault", *PHASES, "all"):
        drawn.add_column(column, justify="left" if column in ("of", "fault") else "right")
    for role, kind in sorted({(role, kind) for role, _, kind in found}):
        counts = [found[role, phase, kind] for phase in PHASES]
        drawn.add_row(role or "the job", kind, *(str(count or "") for count in counts), str(sum(counts)))
    return drawn
