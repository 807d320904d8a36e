"""Random scalings and kills of real jobs, for as long as you like: `make soak`, or with more seeds and other modes

    python tests/e2e/soak.py [--mode sync|async|ssp] [--seeds FIRST LAST] [--folder /tmp/soak]

Each seed is one job and a sequence of operations that the seed fixes (when they fall in the job's life it does not).
The job must end well, its ledger must prove every sample once, and under sync its weights must be those of an
undisturbed job.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from coordinator.archive import read_archive
from coordinator.client import ClientError
from elastic_ps.system.process.descendants import descendants_end_with_me
from tests.e2e import jobs
from tests.e2e.proofs import SCRIPT, assert_undisturbed, finish

MODES = {
    "sync": (),
    "async": ("--consistency", "async", "--rate", "0.01"),
    "ssp": ("--consistency", "ssp", "--staleness", "2", "--rate", "0.01"),
}
OPERATIONS = 10
WORKER, SERVER = 1, 2


class Operator:
    """Who disturbs a job, by chance."""

    def __init__(self, job: jobs.Job, chance: random.Random):
        self.job = job
        self.chance = chance
        self.saved = False

    def act(self) -> str:
        """One operation; returns its name."""
        self.settle()
        kinds: list[Callable[[], None]] = [self.scale, self.scale, self.drain, self.checkpoint, self.kill_worker]
        kinds += [self.kill_coordinator, self.kill_server, self.kill_in_mid_plan, self.kill_in_mid_plan]
        chosen = self.chance.choice(kinds)
        with suppress(ClientError, ProcessLookupError, StopIteration):  # what it was about has gone meanwhile
            chosen()
        return chosen.__name__

    def settle(self) -> None:
        """Wait until nothing is under way."""

        def settled(status):
            wanted = (status.wanted_workers, status.wanted_servers)
            at_rest = status.phase == "running" and not status.plan.id and not status.queued
            return at_rest and jobs.counts(status) == wanted and status.version > 0

        self.job.until(settled, "a job at rest", timeout=90)

    def members(self, role: int) -> list[str]:
        return jobs.member_ids(self.job.status(), role)

    def kill(self, role: int) -> None:
        found = self.members(role)
        if found:  # a job that restarts has none for a moment
            self.job.kill(self.chance.choice(found))

    def scale(self) -> None:
        self.job.client.scale(self.chance.randint(1, 4), self.chance.randint(1, 4))

    def drain(self) -> None:
        found = self.members(self.chance.choice((WORKER, SERVER)))
        if len(found) > 1:
            self.job.client.drain(self.chance.choice(found))

    def checkpoint(self) -> None:
        self.job.client.checkpoint("")
        self.saved = True

    def kill_worker(self) -> None:
        if len(self.members(WORKER)) > 1:  # without a checkpoint the last one's death is the job's
            self.kill(WORKER)

    def kill_server(self) -> None:
        if self.saved:
            self.kill(SERVER)

    def kill_coordinator(self) -> None:
        os.kill(jobs.described(self.job)["coordinator_pid"], signal.SIGKILL)

    def kill_in_mid_plan(self) -> None:
        self.scale()
        time.sleep(self.chance.random() * 1.5)
        self.chance.choice((self.kill_worker, self.kill_coordinator, self.kill_server))()


def disturbed(mode: str, seed: int, folder: Path) -> tuple[dict[str, np.ndarray], list[str], int]:
    """A job under an operator; returns its weights, what was done to it, and how many updates a restore voided."""
    options = ("--max-restarts", "40")
    with jobs.run(folder, SCRIPT, folder, *MODES[mode], workers=2, servers=2, options=options) as job:
        operator = Operator(job, random.Random(seed))
        done = [operator.act() for _ in range(OPERATIONS)]
        operator.settle()
        weights = finish(job, folder, timeout=90)
    return weights, done, sum(entry.voided for entry in read_archive(job.folder).ledger)


def soak(mode: str, seed: int, folder: Path) -> str:
    """One seed; returns what it did."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    weights, done, voided = disturbed(mode, seed, folder)
    told = f"{int(weights['epochs'])} epochs, {voided} updates voided"
    if mode == "sync":
        assert_undisturbed(weights)
    return f"{told}: {', '.join(done)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=MODES, default="sync")
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 5), metavar=("FIRST", "LAST"))
    parser.add_argument("--folder", type=Path, default=Path("build/soak"), help="jobs' folders stay here")
    arguments = parser.parse_args()
    failed = 0
    for seed in range(*arguments.seeds):
        try:
            result = soak(arguments.mode, seed, (arguments.folder / f"{arguments.mode}-{seed}").resolve())
            print(f"seed {seed}: {result}", flush=True)
        except AssertionError as error:
            failed += 1
            print(f"seed {seed} FAILED: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    descendants_end_with_me()
    sys.exit(main())
