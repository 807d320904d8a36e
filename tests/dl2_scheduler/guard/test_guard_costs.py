"""The guard's futures: scaling costs in them what it has cost in the cluster's own history."""

import pytest

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.snapshot import NOTHING, Allocation
from dl2_scheduler.guard.decision import GuardSettings, PolicyStanding, seen, verdict
from dl2_scheduler.guard.program import Comparing
from tests.dl2_scheduler.recorded_starts import ALL, present, started

SETTINGS = GuardSettings(margin=0.1, slots=1)


class Patient:
    """The oldest has all."""

    def allocate(self, snapshot, room):
        return Allocation({state.job.id: NOTHING if number else ALL for number, state in enumerate(snapshot.jobs)})


class Restless:
    """Each job in its turn has all, for a slot: the others are suspended and start again."""

    def allocate(self, snapshot, room):
        turn = snapshot.slot % len(snapshot.jobs)
        return Allocation({state.job.id: NOTHING if n != turn else ALL for n, state in enumerate(snapshot.jobs)})


def compared(history):
    return Comparing(history, NodeRule.SPREAD, f"{__name__}:Patient").compared(f"{__name__}:Restless")


@pytest.mark.parametrize(("start", "falls"), [(None, False), (9.0, False), (50.0, True)])
def test_what_starts_cost_decides_whether_a_policy_may_restart_jobs_all_the_time(history, start, falls):
    started(history, 0, start)
    present(history, 1)
    found = compared(history)
    assert found.baseline == pytest.approx((20 + 24) / 2, abs=1.0), "it starts each job once"
    assert bool(verdict(seen(PolicyStanding(), found, SETTINGS), SETTINGS, "drf")) == falls, found
