"""What scaling costs, found again in histories that were made up with known costs."""

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import JobOutcome, SlotOutcome
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.snapshot import NOTHING, Allocation, Grant, JobState, Snapshot, SpeedReport
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.replay.costs import Cost, mean_delay, scaling_costs
from dl2_scheduler.replay.measured import MeasuredSpeeds, fit_speeds, measured_speeds
from dl2_scheduler.replay.past import past_jobs
from dl2_scheduler.replay.predicted import predict, seconds_between
from dl2_scheduler.replay.scalings import ScalingDelay, Scalings
from dl2_scheduler.sim.lanes import MEASURED, ScalingCost

TASK = {"slots": 1.0}
NODES = (Node("n0", {"slots": 8.0}),)
SAMPLES = 1000.0
SPEEDS = {(0, 0): 0.0, (1, 1): 100.0, (2, 2): 180.0, (1, 0): 100.0, (2, 0): 180.0}
WAIT, ONE, TWO = NOTHING, Grant(1, 1), Grant(2, 2)


@dataclass
class Life:
    """Of one job, in a cluster that begins with its arrival.

    `grants` are of its slots, the last one for all that follow. Training begins `start` seconds after a grant, tasks
    join after `join`, leave at once, and its processes end `end` seconds after its last step.
    """

    grants: list
    start: float = 12.0
    join: float = 7.0
    end: float = 1.5
    epochs: float = 20.0
    name: str = "a"
    slot_seconds: float = 10.0
    fails: bool = False

    def grant(self, slot):
        return self.grants[min(slot, len(self.grants) - 1)]

    def turns(self):
        """When its counts were others: seconds, counts."""
        found = [(0.0, (0, 0))]
        for slot, (before, grant) in enumerate(pairwise([WAIT, *map(self.grant, range(200))])):
            at, counts = slot * self.slot_seconds, (grant.workers, grant.servers)
            if grant != before:
                found = [turn for turn in found if turn[0] <= at]  # what had not come about never will
                delay = self.start if before == WAIT else self.join if grant.workers > before.workers else 0.0
                if found[-1][1] != counts:
                    found.append((at + delay if counts != (0, 0) else at, counts))
        return found

    def lived(self):
        """Seconds and counts, epochs trained by then; its last step."""
        turns, trained, pieces = self.turns(), 0.0, []
        for (at, counts), (until, _) in pairwise([*turns, (math.inf, (0, 0))]):
            speed = SPEEDS[counts] / SAMPLES
            pieces.append((at, counts, trained))
            if speed and trained + speed * (until - at) >= self.epochs:
                return pieces, at + (self.epochs - trained) / speed
            trained += speed * (until - at) if speed else 0.0
        raise AssertionError("it never ends")

    def at(self, time, last, pieces):
        """Counts and epochs."""
        when, counts, trained = [piece for piece in pieces if piece[0] <= time][-1]
        return (counts, trained + SPEEDS[counts] / SAMPLES * (time - when)) if time < last else ((0, 0), self.epochs)

    def slots(self):
        pieces, last = self.lived()
        ended, length = last + self.end, self.slot_seconds
        job = Job(self.name, 0.0, "m", self.epochs, SAMPLES, TASK, TASK, 2, 2)
        job = job if self.grants[-1].servers else job.without_servers()
        found, told, known = [], (), ((0, 0), 0.0)
        for slot in range(math.ceil(ended / length)):
            began, grant = slot * length, self.grant(slot)
            starting = known[0] == (0, 0) and slot > 0 and WAIT not in (grant, self.grant(slot - 1))
            state = JobState(job, known[1], 0, *known[0], starting)
            snapshot = Snapshot(slot, length, NODES, (state,), told)
            until, before = began + length, known[1]
            if until < last:  # after its last step nobody answers
                known = self.at(until, last, pieces)
                counts = known[0]
                told = (SpeedReport(self.name, "m", *counts[::-1], 99.0),) if counts[0] else ()
                since = [at for at, had, _ in pieces if at <= until and had == counts][-1] if counts[0] else None
                done = JobOutcome(self.name, *counts, known[1] - before, None, since=since)
            else:
                told, over = (), ended <= until
                trained = 0.0 if not over or self.fails else self.epochs - before
                done = JobOutcome(self.name, *known[0], trained, ended if over else None)
            outcome = SlotOutcome(slot, (done,), told, began, until)
            found.append(RecordedSlot(began, "drf", snapshot, Allocation({self.name: grant}), outcome))
        return found


def costs(*lives):
    slots = [replace_name(slot, number) for number, life in enumerate(lives) for slot in life.slots()]
    return scaling_costs(slots, fit_speeds(slots))


def replace_name(slot, number):
    """The same slot of another job: its arrival tells it from the others."""
    (state,) = slot.snapshot.jobs
    job = replace(state.job, arrival=float(number))
    return replace(slot, snapshot=replace(slot.snapshot, jobs=(replace(state, job=job),)))


@pytest.mark.parametrize("start", [3.0, 12.0, 37.0])
def test_the_cost_of_a_start_however_many_slots_it_takes(start):
    assert costs(Life([ONE], start=start)).start == Cost(pytest.approx(start), pytest.approx(math.nan, nan_ok=True), 1)


def test_the_costs_of_jobs_without_servers():
    one, two = Grant(1, 0), Grant(2, 0)
    found = costs(Life([one, one, one, two], start=12.0, join=7.0), Life([one, one, one, one, WAIT, one], start=14.0))
    assert (found.start.seconds, found.start.count) == (pytest.approx((12 + 14 + 14) / 3), 3)
    assert (found.join.seconds, found.join.count) == (pytest.approx(7.0), 1)
    assert found.end.seconds == pytest.approx(1.5)


def test_starts_are_pooled_with_the_error_of_their_mean():
    found = costs(Life([ONE], start=12.0), Life([ONE], start=14.0), Life([ONE, ONE, ONE, ONE, WAIT, ONE], start=16.0))
    assert (found.start.seconds, found.start.count) == (pytest.approx(14.5), 4)  # one was suspended: it began twice
    assert found.start.error == pytest.approx(0.957, abs=0.001)


@pytest.mark.parametrize("join", [7.0, 16.0])
def test_tasks_join_while_the_job_trains_on(join):
    found = costs(Life([ONE, ONE, ONE, TWO], join=join))
    assert (found.join.seconds, found.join.count) == (pytest.approx(join), 1)
    assert found.scaling.join == pytest.approx(join)


def test_a_join_that_nobody_waited_for_was_not_seen_and_takes_as_long_as_a_start():
    found = costs(Life([ONE, ONE, ONE, TWO, ONE, ONE], join=16.0, end=0.0))
    assert found.join is None
    assert found.scaling == ScalingCost(pytest.approx(12.0), MEASURED.change, pytest.approx(12.0))


def test_a_join_whose_time_is_told_a_slot_later():
    """The counts are a plan's from its switch on; its time is known once it is committed."""
    slots = Life([ONE, ONE, ONE, TWO], join=7.0).slots()
    (done,) = slots[3].outcome.jobs
    assert (done.workers, done.since) == (2, 37.0)
    for known in (None, 12.0):
        slots[3] = replace(slots[3], outcome=replace(slots[3].outcome, jobs=(replace(done, since=known),)))
        assert scaling_costs(slots, fit_speeds(slots)).join == Cost(
            pytest.approx(7.0), pytest.approx(math.nan, nan_ok=True), 1
        )
    for number, slot in enumerate(slots[4:], 4):
        done = replace(slot.outcome.jobs[0], since=12.0 if number < 8 else 77.0)
        slots[number] = replace(slot, outcome=replace(slot.outcome, jobs=(done,)))
    assert scaling_costs(slots, fit_speeds(slots)).join is None  # what is told much later is of another plan


def test_waits_that_are_cut_off_are_counted():
    seen, ended = Life([ONE, ONE, ONE, TWO], join=16.0), Life([ONE] * 7 + [TWO], join=16.0, epochs=7.5)
    shrunk, suspended = (Life([ONE, ONE, ONE, TWO, TWO, grant, ONE], join=36.0) for grant in (ONE, WAIT))
    found = costs(seen, ended, shrunk, suspended).join
    assert (found.seconds, found.count, found.cut_off) == (pytest.approx(16.0), 1, 3)
    start = costs(Life([ONE], start=12.0), Life([ONE, WAIT, ONE], start=37.0)).start
    assert (start.count, start.cut_off) == (2, 1)


def test_a_join_that_came_about_nobody_knows_when_was_not_cut_off():
    slots = Life([ONE, ONE, ONE, TWO], join=7.0).slots()[:5]
    (done,) = slots[3].outcome.jobs
    slots[3] = replace(slots[3], outcome=replace(slots[3].outcome, jobs=(replace(done, since=None),)))
    slots[4] = replace(slots[4], allocation=Allocation({"a": ONE}))
    slots += [replace_name(slot, 1) for slot in Life([ONE, ONE, ONE, TWO], join=7.0).slots()]
    found = scaling_costs(slots, fit_speeds(slots)).join
    assert (found.count, found.cut_off) == (1, 0)


def waits(*seen, cut_off=()):
    return [*map(ScalingDelay, seen), *(ScalingDelay(seconds, seen=False) for seconds in cut_off)]


def test_a_mean_of_waits_of_which_some_were_cut_off():
    assert mean_delay([]) is mean_delay(waits(cut_off=[3.0])) is None
    values = [-1.0, 2.0, 2.0, 7.0]
    usual = Cost(pytest.approx(np.mean(values)), pytest.approx(np.std(values, ddof=1) / 2), 4)
    assert mean_delay(waits(*values)) == usual
    assert mean_delay(waits(10.0, 50.0, cut_off=[20.0, 30.0])).seconds == pytest.approx(10 + 0.75 * 40)
    early, late = mean_delay(waits(9.0, 11.0, cut_off=[5.0])), mean_delay(waits(9.0, 11.0, cut_off=[500.0]))
    assert (early.seconds, late.seconds) == (pytest.approx(10.0), pytest.approx(9 + 2 * 2 / 3))


def test_long_waits_are_cut_off_more_often_and_count_all_the_same():
    random = np.random.default_rng(5)
    joins, patience = random.uniform(5.0, 35.0, 400), random.uniform(0.0, 60.0, 400)
    found = mean_delay(
        [ScalingDelay(min(join, most), join <= most) for join, most in zip(joins, patience, strict=True)]
    )
    assert found.count + found.cut_off == 400
    assert abs(found.seconds - 20.0) < 3 * found.error < 2.0
    assert joins[joins <= patience].mean() < 20.0 - 3 * found.error  # of those that were seen alone


def test_what_is_kept_of_a_long_history_is_bounded_and_the_latest():
    speeds = MeasuredSpeeds()
    scalings = Scalings(speeds.means, most=5)
    for number in range(30):
        for slot in Life([ONE, ONE, ONE, TWO], start=2.0 + number / 2, end=1.5, epochs=10.0).slots():
            slot = replace_name(slot, number)
            speeds.observe(slot)
            scalings.observe(slot)
    assert [wait.seconds for wait in scalings.starts] == pytest.approx([14.5, 15.0, 15.5, 16.0, 16.5])
    assert len(scalings.joins) == len(scalings.ends) == 5
    assert speeds.means == {("m", *at): pytest.approx(SPEEDS[at]) for at in ((1, 1), (2, 2))}
    assert [wait.seconds for wait in scalings.ends] == pytest.approx([1.5] * 5)
    assert not any((scalings._starting, scalings._joining, scalings._ending)), "nothing is kept of jobs that are gone"


def later(slot, seconds, began=True):
    """The slot, as a clock tells its times that is set forward before it, or in it."""
    done = [
        replace(
            each,
            since=each.since and each.since + seconds,
            finished=each.finished and each.finished + seconds,
        )
        for each in slot.outcome.jobs
    ]
    first = slot.outcome.began + seconds * began
    return replace(
        slot, outcome=replace(slot.outcome, jobs=tuple(done), began=first, ended=slot.outcome.ended + seconds)
    )


@pytest.mark.parametrize("seconds", [8 * 3600.0, -8 * 3600.0])
def test_a_machine_that_slept_or_was_set_in_a_start_does_not_make_starts_long(seconds):
    slots = Life([ONE], start=25.0).slots()
    jumped = [*slots[:2], later(slots[2], seconds, began=False), *(later(slot, seconds) for slot in slots[3:])]
    scalings = Scalings({})
    for slot in (*slots, *jumped):
        scalings.observe(slot)
    assert [wait.seconds for wait in scalings.starts] == [25.0]


def test_a_slot_takes_no_time_below_0_where_the_clock_was_set_back():
    first, second, *_ = Life([ONE]).slots()
    assert seconds_between([first, later(second, -3600.0)]) == 10.0


def test_the_end_is_what_the_speed_does_not_explain():
    found = costs(Life([ONE], end=1.5), Life([ONE], end=2.5, epochs=11.0), Life([ONE], end=3.5))
    assert (found.end.seconds, found.end.count) == (pytest.approx(2.5), 3)
    assert found.scaling.start == pytest.approx(12.0 + 2.5)
    assert found.start_seconds == pytest.approx(12.0), "of another's end nothing"
    assert costs(Life([ONE], fails=True)).end is None


def test_an_end_within_its_error_is_none():
    """It is as the speeds are: of jobs that are slower than others of their type it seems long, of others negative."""
    found = costs(Life([ONE], end=-1.0), Life([ONE], end=1.5))
    assert found.end.seconds == pytest.approx(0.25)
    assert found.scaling.start == pytest.approx(12.0)


def test_a_history_that_begins_in_a_start_or_has_no_times_tells_no_cost():
    slots = Life([ONE]).slots()
    assert scaling_costs(slots[1:], fit_speeds(slots)).start is None
    timeless = [replace(slot, outcome=replace(slot.outcome, began=None, ended=None)) for slot in slots]
    assert scaling_costs(timeless, fit_speeds(timeless)).scaling == MEASURED


def test_speeds_are_what_jobs_trained_by_the_clock():
    rows = {(row.servers, row.workers): row for row in fit_speeds(Life([ONE, ONE, ONE, TWO]).slots()).rows}
    for counts in ((1, 1), (2, 2)):
        assert rows[counts].samples_per_second == pytest.approx(SPEEDS[counts])  # it said 99


@pytest.mark.parametrize("seconds", [8 * 3600.0, -8 * 3600.0])
def test_a_slot_in_which_the_clock_jumped_tells_no_speed(seconds):
    slots = Life([ONE]).slots()
    jumped = later(slots[4], seconds, began=False)
    assert [report.samples_per_second for report in measured_speeds(slots[4])] == [pytest.approx(SPEEDS[1, 1])]
    assert not list(measured_speeds(jumped))


def test_a_job_that_is_told_to_have_ended_as_its_last_slot_began_tells_no_speed():
    slot = Life([ONE]).slots()[4]
    ended = replace(slot.outcome.jobs[0], finished=slot.outcome.began)
    assert not list(measured_speeds(replace(slot, outcome=replace(slot.outcome, jobs=(ended,)))))


@pytest.mark.parametrize("length", [10.0, 30.0])
def test_the_simulator_takes_as_long_as_the_job_did(length):
    slots = Life([ONE], start=12.0, end=1.5, slot_seconds=length).slots()
    (past,) = past_jobs(slots)
    assert past.seconds == pytest.approx(12 + 200 + 1.5)
    table = fit_speeds(slots)

    class Same:
        def allocate(self, snapshot, room):
            return Allocation({state.job.id: ONE for state in snapshot.jobs})

    (found,) = predict(slots, table, Same(), NodeRule.SPREAD, scaling_costs(slots, table).scaling)
    assert found.error == pytest.approx(0.0, abs=0.01)  # the end of one job is within its error: it is not counted
