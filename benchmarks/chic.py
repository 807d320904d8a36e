"""Learn Chic and Chic-Pair in both worlds, by five seeds, and judge them beside rules that know the speeds: an hour.

    python -m benchmarks.chic [--out FOLDER] [--data FOLDER] [--seeds N]

Numbers are mean completion times of the median seed on 30 sequences of 30 jobs that nobody learnt from, with half the
95% interval of the paired difference. Runs are kept in the folder, where `dl2 figure chic-4a` finds them, too.
The table world is of the testbed's measured speeds: the folder has `dl2_testbed_speed.txt`. docs/reference/chic.md says
what the worlds are.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.support.published_data import data_parser, parsed
from benchmarks.support.report import BenchmarkGoal, as_program, at_least, at_most, finish, under
from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.snapshot import JobState, Snapshot
from dl2_scheduler.figures.chic.completion import gain_of
from dl2_scheduler.figures.chic.lab import BOUND, ChicLab
from dl2_scheduler.figures.chic.scale import CHIC, EVENT, JUMPS, LEARNERS, OPTIMUS, PAIR, ROLL_OUT, RULES, ChicScale
from dl2_scheduler.policies.chic.network import Floats
from dl2_scheduler.sim.events.worlds import MOST_SERVERS, formula, table
from dl2_scheduler.sim.speeds import interpolated, read_points

PAIRS = "roll-out, pairs"
USUAL, SMALL = 1.8, (1.8, 2.7)
COLLAPSE = 5.0  # percent over the median seed

Judged = Mapping[tuple[str, float], Floats]
"""Completion times by policy and rate."""


def main() -> int:
    parser = data_parser(__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/chic"))
    parser.add_argument("--seeds", type=int, default=ChicScale().seeds)
    arguments = parsed(parser)
    measured = interpolated(read_points(arguments.data / "dl2_testbed_speed.txt"), MOST_SERVERS, MOST_SERVERS)
    rows: list[dict[str, Any]] = []
    seconds: list[float] = []
    by_formula = ChicLab(arguments.out, formula(), ChicScale(), 0, print)
    by_table = ChicLab(arguments.out, table(measured), ChicScale(), 0, print)
    one = _judge(by_formula, (CHIC, PAIR), by_formula.scale.judged, arguments.seeds, rows, seconds)
    _judge(by_formula, list(LEARNERS)[2:], (USUAL,), 1, rows, [])
    two = _judge(by_table, (CHIC,), (USUAL,), arguments.seeds, rows, seconds)
    goals = [*_formula_goals(one), *_table_goals(two), *_speed_goals(by_formula, rows, seconds)]
    return finish("chic", rows, goals, ["numpy", "numba", "torch"])


def _judge(
    lab: ChicLab,
    names: Sequence[str],
    rates: Sequence[float],
    seeds: int,
    rows: list[dict[str, Any]],
    seconds: list[float],
) -> Judged:
    """Judge learners and rules at some rates; the median seed stands for a learner."""
    found: dict[tuple[str, float], Floats] = {}
    for rate in rates:
        spread: dict[str, list[float]] = {}
        for name in (*RULES, BOUND):
            found[name, rate] = lab.times(name, rate)
        for name in names:
            learnt = [lab.learnt(lab.scale.learner(name), rate, seed) for seed in range(seeds)]
            seconds += [each.seconds for each in learnt]
            times = sorted((lab.times(each.run, rate) for each in learnt), key=lambda some: float(some.mean()))
            found[name, rate] = times[(seeds - 1) // 2]
            spread[name] = [float(some.mean()) for some in times]
        rows += [_row(lab, name, rate, found, spread.get(name, [])) for name in (*RULES, BOUND, *names)]
    return found


def _row(lab: ChicLab, name: str, rate: float, found: Judged, spread: Sequence[float]) -> dict[str, Any]:
    times = found[name, rate]
    by_tick, tick_margin = gain_of(times, found[OPTIMUS, rate])
    by_event, event_margin = gain_of(times, found[EVENT, rate])
    return {
        "world": lab.world.name,
        "jobs/h": rate,
        "policy": name,
        "ACT s": float(times.mean()),
        "under 600 s %": by_tick,
        "+-": tick_margin,
        "under events %": by_event,
        "+- ": event_margin,
        "seeds": len(spread) or None,
        "best s": min(spread) if spread else None,
        "worst s": max(spread) if spread else None,
    }


def _over(times: Floats, other: Floats) -> float:
    """Return by how many percent a mean is over another."""
    return float(100 * (times.mean() / other.mean() - 1))


def _formula_goals(found: Judged) -> list[BenchmarkGoal]:
    rates = sorted({rate for _, rate in found})
    under_tick = {
        (name, rate): gain_of(found[name, rate], found[OPTIMUS, rate])[0] for name in (CHIC, PAIR) for rate in rates
    }
    low = min(rates)
    event = [gain_of(found[CHIC, rate], found[EVENT, rate])[0] for rate in SMALL]
    tick = "under Optimus at 600 s"
    small, every = min(under_tick[CHIC, rate] for rate in SMALL), min(under_tick[PAIR, rate] for rate in rates)
    planned = max(_over(found[CHIC, rate], found[ROLL_OUT, rate]) for rate in rates)
    in_pairs = max(_over(found[PAIR, rate], found[PAIRS, rate]) for rate in rates)
    return [
        at_least(f"formula: Chic {tick}, {low} jobs an hour", 12.0, under_tick[CHIC, low], "%"),
        at_least(f"formula: Chic {tick}, 1.8 and 2.7 jobs an hour", 12.65, small, "%"),
        at_least(f"formula: Chic-Pair {tick}, all rates", 10.08, every, "%"),
        at_least("formula: Chic under the event-woken Optimus, 1.8 and 2.7 jobs an hour", 1.5, min(event), "%"),
        at_most("formula: Chic over roll-out", 0.5, planned, "%"),
        at_most("formula: Chic-Pair over its roll-out", 0.5, in_pairs, "%"),
    ]


def _table_goals(found: Judged) -> list[BenchmarkGoal]:
    chic = found[CHIC, USUAL]
    return [
        at_least("table: Chic under Optimus at 600 s", 40.0, gain_of(chic, found[OPTIMUS, USUAL])[0], "%"),
        at_most("table: Chic over the best-jump planner", 3.0, _over(chic, found[JUMPS, USUAL]), "%"),
    ]


def _speed_goals(lab: ChicLab, rows: Sequence[Mapping[str, Any]], seconds: Sequence[float]) -> list[BenchmarkGoal]:
    """Return the goals of time, and that no seed collapses."""
    worst = max(100 * (row["worst s"] / row["ACT s"] - 1) for row in rows if row["seeds"])
    mended = lab.learnt(lab.scale.learner("Chic, mended"), USUAL, 0)
    each = mended.seconds / (len(mended.run.curve) - 1)
    chic = lab.policy(lab.learnt(lab.scale.learner(CHIC), USUAL, 0).run)
    return [
        under("the longest learning of Chic or Chic-Pair", 600.0, max(seconds), "s"),
        under("an iteration of the mended cross-entropy method", 1.0, each, "s"),
        under("a phase of Chic, up to eight jobs", 5.0, _phase_ms(lab, chic), "ms"),
        at_most("the worst seed over the median one", COLLAPSE, worst, "%"),
    ]


def _phase_ms(lab: ChicLab, policy: AllocationPolicy) -> float:
    """Return the milliseconds of a phase, the median of many."""
    taken = []
    for number, jobs in enumerate(lab.tests(USUAL)):
        states = tuple(JobState(job) for job in jobs[: 1 + number % 8])
        snapshot = Snapshot(0, 600.0, lab.world.nodes, states)
        room = FreeResources(snapshot)
        policy.allocate(Snapshot(0, 600.0, lab.world.nodes, ()), room)
        began = perf_counter()
        policy.allocate(snapshot, room)
        taken.append(1e3 * (perf_counter() - began))
    return float(np.median(taken[8:]))


if __name__ == "__main__":
    as_program(main)
