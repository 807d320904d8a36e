"""The guard's futures: how long the jobs of a live slot would take under one policy and under another."""

from contextlib import closing
from dataclasses import replace

import pytest

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.jobs import UNKNOWN_SAMPLES
from dl2_scheduler.cluster.ranges import MOST_EPOCHS
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobState, Snapshot, SpeedReport
from dl2_scheduler.guard.counterfactual import MOST_SLOTS, completion
from dl2_scheduler.guard.decision import Comparison
from dl2_scheduler.guard.program import Comparing
from dl2_scheduler.live.history import HISTORY_FILE, History
from dl2_scheduler.live.serve_the_waiting import MOST_SLOTS as WAITING_SLOTS
from dl2_scheduler.live.serve_the_waiting import key_of
from dl2_scheduler.live.slot_decision import UnfitAnswer
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.policies.rules.speed_fit import FittedSpeeds
from dl2_scheduler.sim.lanes import MEASURED, ScalingCost
from dl2_scheduler.world_model.observed import with_samples
from tests.dl2_scheduler.learning.test_live_learning import NODES, SLOT, job, live
from tests.dl2_scheduler.recorded_starts import wide


class Starves:
    """Nobody gets anything."""

    def allocate(self, snapshot, room):
        return Allocation({state.job.id: Grant(0, 0) for state in snapshot.jobs})


class Greedy:
    """More than a job may have."""

    def allocate(self, snapshot, room):
        return Allocation({state.job.id: Grant(9, 9) for state in snapshot.jobs})


class Stingy:
    """Everybody gets one of each, as long as there is room."""

    def allocate(self, snapshot, room):
        for number in range(len(snapshot.jobs)):
            room.give(number, 1, 1)
        return room.allocation()


def present(*done, counts=(1, 1)):
    states = [JobState(job(2 * number, 0.0), epochs, 3, *counts) for number, epochs in enumerate(done)]
    return Snapshot(40, SLOT, NODES, tuple(states))


def fitted():
    return fitted_to([SpeedReport("a0", "a", n, n, 10.0 * n) for n in (1, 2, 3, 4)])


def fitted_to(reports):
    found = FittedSpeeds()
    found.observe(reports)
    return found


def test_futures_begin_in_the_present():
    (few, much), jobs = completion(present(0.0), [Stingy(), Drf()], fitted(), MEASURED, NodeRule.SPREAD, 60.0)
    assert jobs == 1
    assert few == pytest.approx(8 * 200 / (10 * SLOT), rel=0.2)  # nothing has to start: it has run 1+1 before
    assert much < few / 2
    (nearly, _), _ = completion(present(7.0), [Stingy(), Drf()], fitted(), MEASURED, NodeRule.SPREAD, 60.0)
    assert nearly == pytest.approx(few / 8, rel=0.05)


class Oldest:
    """The job that came first has all that it can use, the others wait."""

    def allocate(self, snapshot, room):
        first = snapshot.jobs[0].job
        return Allocation({first.id: Grant(first.max_workers, first.max_servers)})


def test_jobs_keep_the_order_in_which_they_came():
    short, long = (JobState(replace(job(0, 0.0), id=name, epochs=epochs)) for name, epochs in (("z", 8.0), ("b", 80.0)))
    ends = []
    for first, second in ((short, long), (long, short)):
        now = Snapshot(3, SLOT, NODES, (first, second))
        (end,), _ = completion(now, [Oldest()], fitted(), MEASURED, NodeRule.SPREAD, 60.0)
        ends.append(end)
    assert ends[0] < ends[1]  # the short one came first, and does not wait for the other


def test_a_job_that_tells_more_epochs_than_can_be_is_as_good_as_done():
    (own, baseline), jobs = completion(
        present(MOST_EPOCHS), [Oldest(), Drf()], fitted(), MEASURED, NodeRule.SPREAD, 60.0
    )
    found = Comparison(3, "dl2:run", own, baseline, jobs)
    assert own < 1.0
    assert found.above < 0.1


def test_jobs_with_next_to_nothing_left_are_compared_all_the_same():
    """Their futures end after 0 slots, by rounding."""
    few = replace(present(0.0), jobs=(JobState(replace(job(0, 0.0), epochs=1e-18)),))
    (own, baseline), jobs = completion(few, [Oldest(), Drf()], fitted(), ScalingCost(), NodeRule.SPREAD, 60.0)
    assert (own, baseline) == (0.0, 0.0)
    assert Comparison(3, "dl2:run", own, baseline, jobs).above == 0.0


def test_futures_have_an_end():
    snapshot = present(-6000.0, counts=(0, 0))
    (long, short), _ = completion(snapshot, [Starves(), Drf()], fitted(), MEASURED, NodeRule.SPREAD, 60.0)
    assert short == MOST_SLOTS
    assert long > 1.5 * short, "what is lacking behind the cut counts, too"
    (cut, same), _ = completion(snapshot, [Starves(), Drf()], fitted(), MEASURED, NodeRule.SPREAD, 0.0)
    assert cut == same <= 1.0


def test_a_job_that_all_leave_to_train_for_days_hides_nothing():
    short = present(*[7.0] * 3, counts=(1, 1))
    days = present(*[7.0] * 3, -1e6, counts=(1, 1))
    few, many = (
        completion(now, [Stingy(), Drf()], fitted(), MEASURED, NodeRule.SPREAD, 60.0)[0] for now in (short, days)
    )
    assert few[0] > 1.1 * few[1]
    assert many[0] - many[1] >= few[0] - few[1]
    assert many[1] < 1.1 * MOST_SLOTS / 4 + few[1]


def test_futures_are_decided_as_the_live_loop_decides():
    """Who runs keeps its minimum, nobody waits forever, and answers are checked."""
    (kept, few, _), _ = completion(
        present(0.0), [Starves(), Stingy(), Drf()], fitted(), MEASURED, NodeRule.SPREAD, 60.0
    )
    assert kept == few
    waits = present(0.0, counts=(0, 0))
    (late, soon), _ = completion(waits, [Starves(), Stingy()], fitted(), MEASURED, NodeRule.SPREAD, 60.0)
    assert late == pytest.approx(soon + WAITING_SLOTS)
    with pytest.raises(UnfitAnswer, match="it gave a0 9 workers"):
        completion(waits, [Greedy(), Drf()], fitted(), MEASURED, NodeRule.SPREAD, 60.0)


@pytest.mark.parametrize(("arrival", "left"), [(70.0, 1), (0.0, WAITING_SLOTS)])
def test_a_future_goes_on_with_the_slots_that_its_jobs_have_waited(arrival, left):
    """Not with those of a former job of the same name."""
    now = present(0.0, counts=(0, 0))
    waits = replace(now, jobs=tuple(replace(each, job=replace(each.job, arrival=70.0)) for each in now.jobs))
    waited = {("a0", arrival): WAITING_SLOTS - 1}
    (late, soon), _ = completion(waits, [Starves(), Stingy()], fitted(), MEASURED, NodeRule.SPREAD, 60.0, waited)
    assert late == pytest.approx(soon + left)


def test_nothing_to_compare():
    assert completion(present(), [Drf()], fitted(), MEASURED, NodeRule.SPREAD, 1.0) == ([0.0], 0)


def test_a_policy_that_never_starts_what_nobody_knows_is_found_out():
    states = present(0.0, counts=(0, 0)).jobs
    unknown = replace(states[0], job=replace(states[0].job, samples_per_epoch=UNKNOWN_SAMPLES))
    snapshot = replace(present(), jobs=(unknown,))
    alike = with_samples(snapshot, {"a": 200.0}, fitted())
    assert alike.jobs == states
    stranger = with_samples(snapshot, {}, fitted())
    assert stranger.jobs[0].job.samples_per_epoch * 8.0 == pytest.approx(10 * SLOT * 10.0, rel=0.1)
    (never, soon), jobs = completion(stranger, [Starves(), Stingy()], fitted(), MEASURED, NodeRule.SPREAD, 60.0)
    assert (jobs, never) == (1, pytest.approx(soon + WAITING_SLOTS))
    assert soon == pytest.approx(10.0, rel=0.05)


def test_a_job_of_next_to_no_epochs_that_has_told_nothing_keeps_no_others_from_being_compared():
    """What is guessed of its samples was more than a simulation takes, as its epochs are so few."""
    runs, other = present(0.0, 0.0).jobs
    tiny = replace(other, job=replace(other.job, epochs=1e-12, samples_per_epoch=UNKNOWN_SAMPLES), workers=0, servers=0)
    snapshot = with_samples(replace(present(), jobs=(runs, tiny)), {}, fitted())
    (own, baseline), jobs = completion(snapshot, [Stingy(), Stingy()], fitted(), MEASURED, NodeRule.SPREAD, 60.0)
    assert jobs == 2
    assert own == baseline > 0


def test_a_history_is_compared_from_its_last_slot(tmp_path):
    with closing(History(tmp_path / HISTORY_FILE)) as history:
        comparing = Comparing(history, NodeRule.SPREAD, "drf")
        assert comparing.compared("fifo") is None
        loop, _, _ = live(history, tmp_path)
        for _ in range(3):
            loop.slot()
        found = comparing.compared("drf")
        assert (found.slot, found.own, found.above) == (2, found.baseline, 0.0)
        assert comparing.compared("drf") is None, "no slot with jobs has passed since"
        assert comparing.compared("fifo").slot == 2, "it was not compared yet"


class Curious:
    """Each job has two workers and a server, which nobody else has tried."""

    def allocate(self, snapshot, room):
        return Allocation({state.job.id: Grant(2, 1) for state in snapshot.jobs})


@pytest.mark.parametrize(("tried", "bad"), [(None, False), (8.0, True)])
def test_a_policy_that_tries_the_unknown_is_not_bad_for_that_until_it_is_known(tmp_path, tried, bad):
    told = [SpeedReport("a0", "a", 1, 1, 10.0), SpeedReport("a0", "a", 2, 2, 10.2)]  # so 2+1 is expected to be slower
    if tried is not None:
        told.append(SpeedReport("a0", "a", servers=1, workers=2, samples_per_second=tried))
    state = JobState(replace(job(0, 0.0), max_workers=2, max_servers=2, epochs=100.0))
    now = Snapshot(0, SLOT, NODES, (state,), tuple(told))
    (own, baseline), _ = completion(now, [Curious(), Drf()], fitted_to(told), MEASURED, NodeRule.SPREAD, 60.0)
    assert own > 1.1 * baseline
    with closing(History(tmp_path / HISTORY_FILE)) as history:
        history.decided(1e9, "drf", now, Allocation({state.job.id: Grant(2, 2)}))
        found = Comparing(history, NodeRule.SPREAD, "drf").compared(f"{__name__}:Curious")
    assert (found.above > 0.1) == bad, found


def test_a_job_that_fits_no_node_is_left_out(tmp_path):
    with closing(History(tmp_path / HISTORY_FILE)) as history:
        states = JobState(job(0, 0.0)), JobState(replace(job(1, 0.0), min_workers=4, worker={"slots": 20.0}))
        history.decided(
            1e9, "drf", Snapshot(0, SLOT, NODES, states), Allocation({each.job.id: Grant(0, 0) for each in states})
        )
        assert Comparing(history, NodeRule.SPREAD, "drf").compared("fifo").jobs == 1


def test_futures_know_how_long_jobs_have_waited():
    snapshot, rest = present(0.0, counts=(0, 0)), (fitted(), MEASURED, NodeRule.SPREAD, 60.0)
    (soon,), _ = completion(snapshot, [Starves()], *rest, {key_of(snapshot.jobs[0].job): WAITING_SLOTS})
    (late,), _ = completion(snapshot, [Starves()], *rest)
    assert late == pytest.approx(soon + WAITING_SLOTS)


class Newest:
    """The job that came last has all that it can use, the others wait."""

    def allocate(self, snapshot, room):
        last = snapshot.jobs[-1].job
        return Allocation({last.id: Grant(last.max_workers, last.max_servers)})


@pytest.mark.parametrize("starting", [False, True])
def test_futures_know_which_jobs_cannot_be_suspended(starting):
    """The live loop keeps them at their minima, so those that need all nodes wait for them."""
    counts = (0, 0) if starting else (4, 4)
    runs, waits = JobState(wide(0, 80.0), 0.0, 1, *counts, starting), JobState(wide(2, 8.0))
    ends = []
    for saves in (True, False):
        now = Snapshot(3, SLOT, NODES, (replace(runs, saves=saves), waits))
        (own, _), _ = completion(now, [Newest(), Oldest()], fitted(), MEASURED, NodeRule.SPREAD, 60.0)
        ends.append(own)
    assert (ends[0] == ends[1]) == starting, "it has nothing yet that could be lost"


def test_a_job_whose_maxima_were_lowered_has_its_future_too():
    lowered = replace(job(0, 0.0), max_workers=2, max_servers=2)
    now = Snapshot(3, SLOT, NODES, (JobState(lowered, 1.0, 3, 4, 4),))
    costs = replace(MEASURED, join=3.0)
    (own, baseline), _ = completion(now, [Drf(), Drf()], fitted(), costs, NodeRule.SPREAD, 60.0)
    assert own == baseline > 0


class FirstOfTwo:
    """The first job has a worker and a server; in the first slot that is asked for nobody has anything."""

    def __init__(self):
        self._asked = 0

    def allocate(self, snapshot, room):
        self._asked += 1
        if self._asked > 1:
            room.give(0, 1, 1)
        return room.allocation()


def test_a_job_that_starts_is_spared_in_futures_too():
    state = JobState(job(0, 0.0), starting=True)
    for each, later in ((state, 0.0), (replace(state, starting=False), 1.0)):
        now = Snapshot(3, SLOT, NODES, (each,))
        (own, usual), _ = completion(now, [FirstOfTwo(), Stingy()], fitted(), MEASURED, NodeRule.SPREAD, 60.0)
        assert own == pytest.approx(usual + later)
