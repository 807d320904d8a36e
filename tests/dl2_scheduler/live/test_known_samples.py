"""Policies see the size of jobs that have not run yet as dreams, judge and guard do."""

from dataclasses import replace

import pytest

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.jobs import UNKNOWN_SAMPLES, Job, Node
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobState, Snapshot
from dl2_scheduler.live.known_samples import KnownSamples
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.live.slot_loop import SlotLoop
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.world_model.observed import ObservedCluster


def job(name, model="a", samples=UNKNOWN_SAMPLES):
    return Job(name, 0.0, model, 10.0, samples, {"slots": 1.0}, {"slots": 1.0}, max_workers=2, max_servers=2)


def slot(number, *jobs):
    return Snapshot(number, 20.0, (Node("n", {"slots": 8.0}),), tuple(map(JobState, jobs)))


def samples(snapshot):
    return {state.job.id: state.job.samples_per_epoch for state in snapshot.jobs}


def test_a_job_has_the_samples_of_the_last_of_its_type_that_told_them():
    known = KnownSamples()
    assert samples(known.seen(slot(0, job("one")))) == {"one": UNKNOWN_SAMPLES}
    assert samples(known.seen(slot(1, job("one", samples=500.0), job("two")))) == {"one": 500.0, "two": 500.0}
    later = known.seen(slot(2, job("three"), job("other", "b"), job("own", samples=70.0)))
    assert samples(later) == {"three": 70.0, "other": UNKNOWN_SAMPLES, "own": 70.0}
    assert samples(known.seen(slot(3, job("four")))) == {"four": 70.0}


def test_nobody_knows_how_long_a_job_trains_whose_samples_are_guessed():
    """One whose data is fixed never tells them: a small guess would keep it, as it were about to end, for hours."""
    known = KnownSamples()
    (told,) = known.seen(slot(0, job("one", samples=500.0))).jobs
    (guessed,) = known.seen(slot(1, job("two"))).jobs
    assert (told.samples_guessed, guessed.samples_guessed) == (False, True)
    assert (told.seconds_left(100.0), guessed.seconds_left(100.0)) == (50.0, float("inf"))
    assert told.seconds_left(0.0) == float("inf")


class Seeing:
    """It decides as DRF does, and keeps what it sees."""

    def __init__(self):
        self.seen = []

    def allocate(self, snapshot, room):
        self.seen.append(samples(snapshot))
        return Drf().allocate(snapshot, room)


class Played:
    """A cluster of which nothing matters but what it shows."""

    def __init__(self, *slots):
        self.slots = list(slots)

    done = False

    def snapshot(self):
        return self.slots.pop(0)

    def apply(self, allocation: Allocation):
        pass

    def finish_slot(self):
        raise StopIteration


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_policy_and_shadow_see_what_dreams_see_and_the_history_what_was_told(history, tmp_path, restarted):
    policies = {"drf": Drf(), "own": Seeing(), "beside": Seeing()}
    told = slot(1, job("one", samples=500.0))
    history.decided(1.0, "drf", told, Allocation({"one": Grant(1, 1)}))
    kept = Policies(policies.__getitem__, "drf", tmp_path, "own")
    kept.use_shadow("beside")
    slots = [replace(told, slot=2), slot(900, job("two"))][restarted:]
    loop = SlotLoop(Played(*slots), kept, NodeRule.SPREAD, history)
    for _ in range(2 - restarted):
        with pytest.raises(StopIteration):
            loop.slot()
    assert policies["own"].seen[-1] == policies["beside"].seen[-1] == {"two": 500.0}
    observed = ObservedCluster(history)
    observed.catch_up()
    assert samples(observed.present) == {"two": 500.0}
    assert samples(observed.last.snapshot) == {"two": UNKNOWN_SAMPLES}
