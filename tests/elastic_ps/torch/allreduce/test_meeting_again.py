"""Members whose group has failed at one of them meet again, whatever the others do meanwhile."""

from unittest.mock import patch

import pytest

pytest.importorskip("torch")

from elastic_ps.torch.allreduce.group import WorkerGroup
from tests.elastic_ps.torch.allreduce.group_job import BATCH, SAMPLES, finished, started

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STEPS = -(-SAMPLES // BATCH)


class LostSum:
    """The worker of rank 1 loses its connections as it gets the sum of the step at `version`, which the others have."""

    def __init__(self, version):
        self.version = version
        self.fired = False

    def patched(self, workers):
        gathers = WorkerGroup.gather

        def gather(group, numbers):
            gathered = gathers(group, numbers)
            node = workers[1].node if workers else None
            if node is not None and node.held == self.version and group is node.group and not self.fired:
                self.fired = True
                raise RuntimeError("Connection reset by peer")
            return gathered

        return patch.object(WorkerGroup, "gather", gather)


def all_end(coordinator, workers, lost):
    for worker in workers:
        worker.wait()
    assert lost.fired
    assert [plan.cause for plan in coordinator.state.history] == ["start"], "nobody is taken for dead"
    finished(coordinator, workers, 2)


@pytest.mark.parametrize("count", [2, 3])
def test_members_in_the_last_barrier_meet_again_with_one_whose_connections_broke(count):
    """It lacks the last step. They are in no collective that could fail, so that it ended after a minute, alone."""
    lost, workers = LostSum(2 * STEPS - 1), []
    with lost.patched(workers):
        coordinator, found = started(count, 2)
        workers += found
        all_end(coordinator, workers, lost)


def test_a_member_whose_script_is_busy_meets_again_meanwhile():
    """As one that evaluates for minutes: the others ended one after the other."""
    lost, workers = LostSum(4), []

    def at(worker, where):
        if where == "begun" and worker.node.held == 5 and worker is workers[0]:
            with worker.node.changed:
                assert worker.node.changed.wait_for(lambda: worker.node.group.attempt == 1, 30)

    with lost.patched(workers):
        coordinator, found = started(2, 2, at=at)
        workers += found
        all_end(coordinator, workers, lost)
