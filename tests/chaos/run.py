"""Jobs that are disturbed, some at a time, each in a room of its own."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.chaos.disturbed import PROMPT_SECONDS, START_SECONDS
from tests.chaos.draw import JobDraw
from tests.chaos.result import Result, blank, bound
from tests.chaos.room import inside
from tests.chaos.table import GOOD

_LOOK_SECONDS = 0.2
_PREPARING_SECONDS = 180.0  # of each fault: to come to rest, reach the phase, and go back
_PROOF_SECONDS = 300.0


@dataclass
class Running:
    """One job under way.

    Args:
        draw: of it.
        folder: its own.
        process: of its room.
        deadline: monotonic seconds after which the harness itself is broken.
    """

    draw: JobDraw
    folder: Path
    process: subprocess.Popen[bytes]
    deadline: float
    told: int = 0
    results: list[Result] = field(default_factory=list)

    def news(self) -> Iterator[Result]:
        """Results that have come since."""
        lines: Sequence[str] = ()
        with suppress(FileNotFoundError):
            lines = (self.folder / "results.jsonl").read_text().splitlines()
        for line in lines[self.told :]:
            result = _result(self.draw, json.loads(line))
            self.results.append(result)
            yield result
        self.told = len(lines)

    def close(self) -> None:
        """End all of it."""
        self.process.kill()
        self.process.wait()


def _result(job: JobDraw, told: dict[str, Any]) -> Result:
    if "unstarted" in told:
        return replace(blank(job, job.faults[0]), outcome="ended", why=f"the job did not start: {told['unstarted']}")
    return Result(**told)


class Run:
    """All jobs of a run, some at a time.

    Args:
        draws: of them.
        folder: of their folders; those of jobs that failed are kept.
        lanes: jobs at a time.
        room: whether namespaces can be had.

    Attributes:
        results: by the numbers of their faults.
        jobs: of each that has ended, whether it came through and proved itself.
    """

    def __init__(self, draws: Sequence[JobDraw], folder: Path, lanes: int, room: bool):
        self._waiting = list(draws)
        self._folder = folder
        self._lanes = lanes
        self._room = room
        self._running: list[Running] = []
        self._started = 0
        self._count = sum(len(job.faults) for job in draws)
        self.results: dict[int, Result] = {}
        self.jobs: list[bool] = []

    def run(self) -> None:
        """Run them to their ends; all processes end with this call, however it ends."""
        try:
            while self._waiting or self._running:
                while self._waiting and len(self._running) < self._lanes:
                    self._running.append(self._start(self._waiting.pop(0)))
                time.sleep(_LOOK_SECONDS)
                for job in list(self._running):
                    self._look(job)
        finally:
            for job in self._running:
                job.close()

    def _start(self, job: JobDraw) -> Running:
        folder = (self._folder / f"job-{self._started}").resolve()
        self._started += 1
        folder.mkdir(parents=True)
        (folder / "draw.json").write_text(json.dumps(job.to_json(), indent=2))
        command = [sys.executable, "-m", "tests.chaos.one", str(folder / "draw.json"), str(folder)]
        with (folder / "harness.log").open("wb") as log:
            process = subprocess.Popen(inside(command, self._room), stdout=log, stderr=log)
        most = START_SECONDS + 3 * bound(job.lease) * START_SECONDS / PROMPT_SECONDS
        each = [_PREPARING_SECONDS + fault.leases * job.lease + most for fault in job.faults]
        return Running(job, folder, process, time.monotonic() + sum(each) + _PROOF_SECONDS)

    def _look(self, job: Running) -> None:
        ended = job.process.poll() is not None
        for result in job.news():
            self._take(result)
        if not ended and time.monotonic() > job.deadline:
            job.close()
            ended = True
        if ended:
            self._running.remove(job)
            self._finish(job)

    def _finish(self, job: Running) -> None:
        job.close()
        left = [fault for fault in job.draw.faults if fault.number not in self.results]
        well = job.process.returncode == 0 and not left
        self.jobs.append(well)
        if well:
            shutil.rmtree(job.folder)
        elif not job.results:  # the harness broke: its log says how
            self._take(
                replace(blank(job.draw, left.pop(0)), outcome="harness", why=_end_of(job.folder / "harness.log"))
            )
        if left:
            self._waiting.insert(0, replace(job.draw, faults=tuple(left)))

    def _take(self, result: Result) -> None:
        self.results[result.number] = result
        times = ", ".join(
            f"{name} {value:.1f} s"
            for name in ("trained", "whole", "planned")
            if (value := getattr(result, name)) is not None
        )
        plan = f", plan {result.plan}" if result.plan else ""
        safe = ", protected" if result.protected else ", replicas" if result.replicas else ""
        where = f"[{result.mode} {result.transport} {result.lease:g} s{safe}]"
        what = f"{result.fault} ({result.met})" if result.met else result.fault
        print(f"{len(self.results)}/{self._count} {result.outcome}: {what} {where}: {times}{plan}", flush=True)
        if result.outcome != GOOD:
            print(f"    {result.why.strip().splitlines()[0] if result.why.strip() else ''}", flush=True)


def _end_of(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
