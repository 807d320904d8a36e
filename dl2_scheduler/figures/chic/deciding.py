"""Figures 5a and 5b of Chic: what deciding takes, and how often Optimus should decide."""

from time import perf_counter

import numpy as np

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.interfaces import AllocationPolicy, PolicyTrigger
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot
from dl2_scheduler.figures.chic.completion import ACT
from dl2_scheduler.figures.chic.lab import ChicLab
from dl2_scheduler.figures.chic.scale import CHIC, COSTS, EVENT, PAIR, ROLL_OUT, RULES, TICKS, PoolRule
from dl2_scheduler.figures.draw import Panel, Picture, Row, Series
from dl2_scheduler.learning.chic.cross_entropy import ChicRun
from dl2_scheduler.policies.rules.optimus import Optimus
from dl2_scheduler.sim.events.cluster import completion_times
from dl2_scheduler.sim.metrics import estimate


class _Timed:
    """See `AllocationPolicy`: another one, and the seconds that its decisions took."""

    def __init__(self, policy: AllocationPolicy):
        self.trigger = getattr(policy, "trigger", PolicyTrigger.SLOT)
        self.seconds, self.decisions = 0.0, 0
        self._policy = policy

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """See `AllocationPolicy.allocate`."""
        began = perf_counter()
        found = self._policy.allocate(snapshot, room)
        self.seconds += perf_counter() - began
        self.decisions += bool(snapshot.jobs)
        return found


def run_times(lab: ChicLab) -> Picture:
    """Draw what it takes to schedule all jobs of a sequence (figure 5a); it differs from machine to machine."""
    rate = lab.scale.usual
    who: dict[str, PoolRule | ChicRun] = {
        f"Optimus, {tick:.0f} s": PoolRule(Optimus, tick) for tick in (600.0, 300.0, 100.0)
    }
    who |= {name: RULES[name] for name in (EVENT, ROLL_OUT)}
    who |= {name: lab.learnt(lab.scale.learner(name), rate, lab.seed).run for name in (CHIC, PAIR)}
    rows: list[Row] = []
    for name, each in who.items():
        tick = each.tick if isinstance(each, PoolRule) else 600.0
        timed = []
        for jobs in (lab.tests(rate)[0], *lab.tests(rate)):  # the first one warms up what is compiled
            timed.append(_Timed(lab.policy(each)))
            completion_times(jobs, lab.world.nodes, lab.world.speeds, timed[-1], tick)
        found = estimate([1e3 * some.seconds for some in timed[1:]])
        each_ms = np.mean([1e3 * some.seconds / some.decisions for some in timed[1:]])
        rows.append({"policy": name, "ms_for_all": found.mean, "margin": found.margin, "ms_a_decision": float(each_ms)})
    names = [row["policy"] for row in rows]
    series = Series("", names, [row["ms_for_all"] for row in rows], [row["margin"] for row in rows])
    return Picture([Panel("policy", [series], y_label=f"ms to schedule {lab.scale.jobs} jobs", width=2.4)], rows)


def ticks(lab: ChicLab) -> Picture:
    """Draw completion times of Optimus by the seconds between its decisions, and by what a change costs (figure 5b).

    A rule that is asked at events has no seconds between decisions: its are 0 in the CSV file.
    """
    rate = lab.scale.usual
    learnt = {name: lab.learnt(lab.scale.learner(name), rate, lab.seed).run for name in (CHIC, PAIR)}
    at_events: dict[str, str | ChicRun] = {EVENT: EVENT, ROLL_OUT: ROLL_OUT, **learnt}
    rows: list[Row] = []
    panels = []
    for cost in COSTS:
        by_tick = [estimate(lab.times(PoolRule(Optimus, tick), rate, cost).mean(axis=1).tolist()) for tick in TICKS]
        levels = {name: estimate(lab.times(who, rate, cost).mean(axis=1).tolist()) for name, who in at_events.items()}
        named = [("Optimus", tick, each) for tick, each in zip(TICKS, by_tick, strict=True)]
        named += [(name, 0.0, each) for name, each in levels.items()]
        rows += [
            {
                "change_seconds": cost,
                "policy": name,
                "tick_seconds": tick,
                "act_seconds": each.mean,
                "margin": each.margin,
            }
            for name, tick, each in named
        ]
        series = Series("Optimus", list(TICKS), [each.mean for each in by_tick], [each.margin for each in by_tick])
        lines = {name: each.mean for name, each in levels.items()}
        title = f"a change costs {cost:g} s"
        panels.append(Panel("seconds between decisions", [series], title, ACT, lines, from_zero=False))
    return Picture(panels, rows)
