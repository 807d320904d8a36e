"""When jobs of real processes start and end, for whoever compares it with what was forecast."""

from contextlib import closing

import pytest

from benchmarks.forecasts_processes import SeenCluster, look_back, row_of
from dl2_scheduler.cluster.interfaces import JobOutcome, SlotOutcome
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.snapshot import NOTHING, Allocation, Grant, JobState, Snapshot
from dl2_scheduler.live.history import HISTORY_FILE, History
from protos import cluster_pb2 as pb

SLOT, BEGAN = 10.0, 1e9  # seconds, and when the cluster began
ONE = {"slots": 1.0}
NODES = (Node("n", {"slots": 2.0}),)


def job(name, arrival):
    return Job(name, arrival, "a", 8.0, 200.0, ONE, ONE, max_workers=1, max_servers=1)


def shown(name, arrival, phase, low=None, high=None):
    """A job as `dl2 jobs` shows it in the first slot, with when it is expected to start."""
    found = pb.JobStatus(name=name, phase=phase, submitted=BEGAN + arrival)
    if low is not None:
        found.forecast.made = BEGAN
        found.forecast.start.CopyFrom(pb.ExpectedTime(at=low, low=low, high=high))
    return found


@pytest.fixture
def folder(tmp_path):
    """The job `b` waits for a slot, and trains 4.5 s after the next one began; decisions take half a second."""
    one, other = job("a", 1.0), job("b", 2.0)
    with closing(History(tmp_path / HISTORY_FILE)) as history:
        states = (JobState(one, 0.0, 1, 1, 1), JobState(other))
        grants = Allocation({"a": Grant(1, 1), "b": NOTHING})
        history.decided(BEGAN + 0.5, "drf", Snapshot(0, SLOT, NODES, states), grants)
        done = (JobOutcome("a", 1, 1, 7.0, 6.0, since=0.0), JobOutcome("b", 0, 0, 0.0, None))
        history.happened(SlotOutcome(0, done, (), 0.0, SLOT))
        snapshot = Snapshot(1, SLOT, NODES, (JobState(other),))
        history.decided(BEGAN + SLOT + 0.5, "drf", snapshot, Allocation({"b": Grant(1, 1)}))
        done = (JobOutcome("b", 1, 1, 1.0, None, since=SLOT + 4.5),)
        history.happened(SlotOutcome(1, done, (), SLOT, 2 * SLOT))
    return tmp_path


def test_a_start_is_when_it_was_and_not_when_somebody_looked_next(folder):
    """All coordinators were asked before it was seen, 3 s after the last look: sharp intervals had not held."""
    seen = SeenCluster()
    at = BEGAN + SLOT + 4.5
    for phase in ("waiting", "starting", "running"):  # at 11, 14 and 17 s
        seen.look([shown("b", 2.0, phase, at - 0.2, at + 0.3)])
    look_back(seen, folder)
    assert seen.came == {("b", "start"): pytest.approx(at)}
    row = row_of("start", seen, set())
    assert (row["forecasts"], row["held %"]) == (1, 100.0)
    assert row["median error s"] == pytest.approx(0.2, abs=1e-3)


def test_an_end_is_when_the_job_ended(folder):
    seen = SeenCluster()
    over = shown("a", 1.0, "finished")
    over.ended = BEGAN + 6.0
    seen.look([over, shown("b", 2.0, "waiting")])
    look_back(seen, folder)
    assert seen.came[("a", "end")] == BEGAN + 6.0
    assert ("a", "start") not in seen.came, "it ran before the history begins"


def test_a_start_that_nobody_knows_does_not_count(tmp_path):
    seen = SeenCluster()
    seen.look([shown("a", 1.0, "finished", BEGAN, BEGAN + 1.0)])
    with closing(History(tmp_path / HISTORY_FILE)) as history:
        snapshot = Snapshot(0, SLOT, NODES, (JobState(job("a", 1.0)),))
        history.decided(BEGAN, "drf", snapshot, Allocation({"a": Grant(1, 1)}))
        history.happened(SlotOutcome(0, (JobOutcome("a", 1, 1, 8.0, 6.0),), (), 0.0, SLOT))
    look_back(seen, tmp_path)
    assert row_of("start", seen, set())["forecasts"] == 0
