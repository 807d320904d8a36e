"""What a seed came to."""

import gc
import time
from dataclasses import dataclass

from tests.world import world
from tests.world.faults.cells import Cell
from tests.world.faults.job_draw import JobDraw
from tests.world.oracles.oracle import Oracle


@dataclass(frozen=True)
class Result:
    """A result is what one world came to.

    Attributes:
        draw: the job.
        failures: what was wrong; none: nothing.
        hits: role, phase and kind of each fault that came about.
        watched: faults that came alone, while each block had a follower.
        steps: that workers began.
        virtual: seconds in the world.
        real: seconds of a core that it took.
        story: of all processes.
    """

    draw: JobDraw
    failures: tuple[str, ...]
    hits: tuple[Cell, ...]
    watched: int
    steps: int
    virtual: float
    real: float
    story: str

    def __str__(self) -> str:
        replicas = ", replicas" if self.draw.replicas else ""
        mode = "all-reduce" if self.draw.serverless else f"{self.draw.mode}, {self.draw.servers} servers{replicas}"
        job = f"{mode}, {self.draw.workers} workers"
        what = f"{self.steps} steps, {len(self.hits)} faults, {self.virtual:.1f} s in {self.real:.2f} s"
        return f"seed {self.draw.seed}: {'; '.join(self.failures) or 'good'} ({job}; {what})"


def play(draw: JobDraw) -> Result:
    """Run one world."""
    began = time.process_time()
    gc.collect()  # the world before
    gc.freeze()  # what is left stays, and need not be looked through again
    oracle = Oracle(draw)
    ran = world.run(draw, oracle)
    return Result(
        draw,
        tuple(ran.failures),
        tuple(ran.injector.hits),
        ran.guarantee.watched,
        oracle.steps,
        ran.scheduler.now,
        time.process_time() - began,
        ran.story.text(),
    )
