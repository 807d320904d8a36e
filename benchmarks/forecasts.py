"""This benchmark checks forecasts over simulated days of a cluster, with the live loop, its history, the forecaster.

    python -m benchmarks.forecasts [--days 20] [--policies drf planner] [--seed 0] [--data FOLDER]

Only the cluster is simulated. Jobs come without end; each has a speed of its own, and its owner's estimate of its
epochs is wrong. A forecast counts whenever it is shown: at each sixth slot, for every job that is there. Those of the
first three days do not count, in which the forecaster gets to know the cluster; the run goes on until all that count
have come true.
"""

import json
import logging
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support.published_data import data_parser, parsed
from benchmarks.support.report import BenchmarkGoal, as_program, at_least, at_most, finish, under
from dl2_scheduler.cluster.forecast import ExpectedTime
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import SlotOutcome
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import JobId
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.forecasts.forecaster import Forecaster
from dl2_scheduler.forecasts.records import FORECASTS_FILE, EventKind, ForecastRecords
from dl2_scheduler.live.history import HISTORY_FILE, History
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.live.slot_loop import SlotLoop
from dl2_scheduler.policies.registry import make_live_policy
from dl2_scheduler.sim.arrivals import Pattern, generate
from dl2_scheduler.sim.catalogue import CATALOGUE
from dl2_scheduler.sim.lanes import MEASURED
from dl2_scheduler.sim.simulator import SimulatedCluster
from dl2_scheduler.sim.speeds import interpolated, read_points
from dl2_scheduler.sim.trace import parse_cluster
from dl2_scheduler.sim.variation import Variation

STATE = Path("build/bench/forecasts")
NODES = parse_cluster("6x8cpu,8gpu")
SLOT = 1200.0
DAY = 72  # slots
FIRST_DAYS = 3  # that do not count
EVERY = 6  # slots from one forecast to the next
MIX = {name: 1.0 for name in CATALOGUE if name != "vgg-16"}  # a job of which takes four days
JOBS_A_SLOT = 0.28
VARIATION, SPREAD, ESTIMATE_ERROR = 0.1, 0.5, 0.1
LEVELS = tuple(number / 10 for number in range(1, 10))
HAS_RUN = 0.2
EPOCH = 1e9  # unix seconds at which the cluster begins


@dataclass(frozen=True)
class ShownForecast:
    """A `ShownForecast` is one that somebody would have been shown.

    Attributes:
        kind: of what.
        job: its id.
        slot: in which it was made.
        first: whether it is the first of its kind for the job.
        progress: the part of its owner's estimate that the job had trained.
        seconds: before which the event comes about, by `LEVELS`.
        expected: what people are told, in unix seconds.
    """

    kind: EventKind
    job: JobId
    slot: int
    first: bool
    progress: float
    seconds: tuple[float, ...]
    expected: ExpectedTime


@dataclass(frozen=True)
class CheckedForecast:
    """A `CheckedForecast` has come true.

    Attributes:
        shown: the forecast.
        actual: seconds until it came about.
        whole: seconds from the job's arrival until it came about.
    """

    shown: ShownForecast
    actual: float
    whole: float

    @property
    def held(self) -> bool:
        """Return whether it came about within the interval of 80%."""
        at = EPOCH + self.shown.slot * SLOT + self.actual
        return self.shown.expected.low <= at <= self.shown.expected.high

    @property
    def off(self) -> float:
        """The seconds between the middle and what came about."""
        return abs(self.shown.seconds[len(LEVELS) // 2] - self.actual)


class ForecastDays:
    """These are days of a served cluster, simulated; see `commands/driving`.

    Args:
        policy: the name of the policy that decides.
        jobs: that come.
        speeds: of their types.
        seed: of how their own speeds stray.
        days: that count.
    """

    def __init__(self, policy: str, jobs: Sequence[Job], speeds: Speeds, seed: int, days: int):
        self._cluster = SimulatedCluster(jobs, NODES, speeds, SLOT, MEASURED, Variation(VARIATION, seed))
        self._jobs = {job.id: job for job in jobs}
        self._policy, self._until = policy, (FIRST_DAYS + days) * DAY
        self._shown: list[ShownForecast] = []
        self._known: set[tuple[EventKind, JobId]] = set()  # of which something has been shown
        self._starts: dict[JobId, float] = {}  # seconds since the cluster began
        self._ends: dict[JobId, float] = {}

    def run(self) -> list[CheckedForecast]:
        """Run until all that count have come true, and return these."""
        shutil.rmtree(STATE, ignore_errors=True)
        STATE.mkdir(parents=True)
        policies = Policies(make_live_policy, "drf", STATE, self._policy)
        with (
            closing(History(STATE / HISTORY_FILE)) as history,
            closing(ForecastRecords(STATE / FORECASTS_FILE)) as records,
        ):
            now = lambda: EPOCH + self._cluster.lanes.slot * SLOT  # noqa: E731
            loop = SlotLoop(self._cluster, policies, NodeRule.SPREAD, history, now=now)
            forecaster = Forecaster(history, NodeRule.SPREAD, records, make_live_policy)
            while self._cluster.lanes.slot < self._until or self._waits():
                number = self._cluster.lanes.slot
                self._note(number, loop.slot())
                if number % EVERY == 0 and number < self._until:
                    self._show(forecaster, number)
        return [self._checked(shown) for shown in self._shown]

    def _waits(self) -> bool:
        return any(shown.job not in self._of(shown.kind) for shown in self._shown)

    def _of(self, kind: EventKind) -> dict[JobId, float]:
        return self._starts if kind is EventKind.START else self._ends

    def _note(self, slot: int, outcome: SlotOutcome) -> None:
        for done in outcome.jobs:
            if done.workers:
                self._starts.setdefault(done.id, slot * SLOT + MEASURED.start)
            if done.finished is not None:
                self._ends[done.id] = done.finished

    def _show(self, forecaster: Forecaster, slot: int) -> None:
        made = forecaster.made()
        if made is None or made.slot != slot:
            return
        done = {state.job.id: state.epochs_done / state.job.estimate for state in forecaster.present_jobs}
        for each in made.forecasts:
            calibration = forecaster.calibrations[each.kind]
            seconds = tuple(calibration.seconds(each.raw, LEVELS))
            expected = calibration.expected(each.raw, each.made)
            first = (each.kind, each.job) not in self._known
            self._known.add((each.kind, each.job))
            if slot >= FIRST_DAYS * DAY:
                self._shown.append(ShownForecast(each.kind, each.job, slot, first, done[each.job], seconds, expected))

    def _checked(self, shown: ShownForecast) -> CheckedForecast:
        at = self._of(shown.kind)[shown.job]
        return CheckedForecast(shown, at - shown.slot * SLOT, at - self._jobs[shown.job].arrival)


def main() -> int:
    """Run, print, write build/bench/forecasts.json."""
    parser = data_parser(__doc__)
    parser.add_argument("--days", type=int, default=20, help="that count (default 20)")
    parser.add_argument("--policies", nargs="+", default=["drf", "planner"], help="one run each (default drf planner)")
    parser.add_argument("--seed", type=int, default=0, help="of what comes; 100 and more were tuned with")
    options = parsed(parser)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(message)s")
    speeds = interpolated(read_points(options.data / "dl2_testbed_speed.txt"), 16, 16)
    rows: list[dict[str, Any]] = []
    reliability: list[dict[str, Any]] = []
    everything: list[CheckedForecast] = []
    for policy in options.policies:
        jobs = days_of_jobs(options.seed, options.days)
        checked = ForecastDays(policy, jobs, speeds, options.seed, options.days).run()
        new = [*summary(policy, checked), *reliability_of(policy, checked)]
        print("\n".join(map(json.dumps, new)), file=sys.stderr, flush=True)
        rows += summary(policy, checked)
        reliability += reliability_of(policy, checked)
        everything += checked
    return finish("forecasts", [*rows, *reliability], list(goals(everything)), ("numpy", "scipy"))


def days_of_jobs(seed: int, days: int) -> list[Job]:
    """Return jobs that come for the days that count, and for as long before and after as it takes."""
    slots = 2 * (FIRST_DAYS + days) * DAY
    jobs = generate(
        Pattern.GOOGLE,
        int(slots * JOBS_A_SLOT),
        seed,
        MIX,
        rate=JOBS_A_SLOT,
        epochs_spread=SPREAD,
        estimate_error=ESTIMATE_ERROR,
    )
    return [replace(job, id=f"job-{job.id:05}", min_workers=2, min_servers=2) for job in jobs]


def summary(policy: str, checked: Sequence[CheckedForecast]) -> Iterator[dict[str, Any]]:
    """Yield how often the intervals held, and how wide they were, for each kind."""
    for kind in EventKind:
        own = [each for each in checked if each.shown.kind is kind]
        firsts = [each for each in own if each.shown.first]
        days = [
            [each.held for each in own if each.shown.slot // DAY == day]
            for day in sorted({each.shown.slot // DAY for each in own})
        ]
        widths = [(each.shown.seconds[-1] - each.shown.seconds[0]) / SLOT for each in own]
        yield {
            "policy": policy,
            "of": str(kind),
            "forecasts": len(own),
            "jobs": len({each.shown.job for each in own}),
            "held %": percent(each.held for each in own),
            "first ones held %": percent(each.held for each in firsts),
            "worst day %": min(percent(day) for day in days),
            "best day %": max(percent(day) for day in days),
            "median slots until": float(np.median([each.actual for each in own])) / SLOT,
            "median width in slots": float(np.median(widths)),
            "median error in slots": float(np.median([each.off for each in own])) / SLOT,
        }


def reliability_of(policy: str, checked: Sequence[CheckedForecast]) -> Iterator[dict[str, Any]]:
    """Yield, for each level, how often the event came about before the time that was told with that chance."""
    for place, level in enumerate(LEVELS):
        row: dict[str, Any] = {"under": policy, "said %": 100 * level}
        for kind in EventKind:
            own = [each for each in checked if each.shown.kind is kind]
            row[f"{kind}s %"] = percent(each.actual <= each.shown.seconds[place] for each in own)
        yield row


def goals(checked: Sequence[CheckedForecast]) -> Iterator[BenchmarkGoal]:
    """Yield what was promised, over all policies."""
    for kind in EventKind:
        held = percent(each.held for each in checked if each.shown.kind is kind)
        yield at_least(f"80% intervals that held, of {kind}s", 75.0, held, "%")
        yield at_most(f"80% intervals that held, of {kind}s", 85.0, held, "%")
    late = [each for each in checked if each.shown.kind is EventKind.END and each.shown.progress >= HAS_RUN]
    of_whole = 100 * float(np.median([each.off / each.whole for each in late]))
    yield under("median error of the end after 20% of the epochs, of the time from arrival", 15.0, of_whole, "%")
    of_rest = 100 * float(np.median([each.off / each.actual for each in at_first(late)]))
    yield under("the same, when 20% have just been trained, of the time that is left", 15.0, of_rest, "%")


def at_first(checked: Sequence[CheckedForecast]) -> list[CheckedForecast]:
    """Return the first forecast of each job."""
    return list({each.shown.job: each for each in reversed(checked)}.values())


def percent(which: Iterator[bool] | Sequence[bool] | Any) -> float:
    """Return how many of them are true."""
    found = list(which)
    return 100 * sum(found) / max(len(found), 1)


if __name__ == "__main__":
    as_program(main)
