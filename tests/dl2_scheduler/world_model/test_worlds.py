"""Worlds that agree with a history, and scenes that are played in them."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from dl2_scheduler.cluster.free_resources import which_fit
from dl2_scheduler.cluster.interfaces import JobOutcome, SlotOutcome
from dl2_scheduler.cluster.jobs import UNKNOWN_SAMPLES, Job, Node
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobState, Snapshot, SpeedReport
from dl2_scheduler.live.history import HISTORY_FILE, History
from dl2_scheduler.policies.rules.speed_fit import FittedSpeeds
from dl2_scheduler.sim.lanes import ScalingCost
from dl2_scheduler.world_model.arrivals import drawn_day, jobs_that_came
from dl2_scheduler.world_model.future import PRESENT
from dl2_scheduler.world_model.known_jobs import KnownJob
from dl2_scheduler.world_model.observed import ObservedCluster
from dl2_scheduler.world_model.worlds import Worlds, can_be_played, paying_speeds

SLOT = 60.0
ONE = {"slots": 1.0}
NODES = (Node("n", {"slots": 12.0}),)


def job(name, arrival=0.0, epochs=8.0, samples=200.0, estimate=None):
    return Job(name, arrival, name[0], epochs, samples, ONE, ONE, 4, 3, epochs_estimate=estimate)


def lived(history, slot, states, ended=(), reports=()):
    """A slot in which each job runs 1+1 and trains one epoch, or ends."""
    grants = {state.job.id: Grant(1, 1) for state in states}
    history.decided(slot * SLOT, "drf", Snapshot(slot, SLOT, NODES, tuple(states), reports), Allocation(grants))
    outcomes = [JobOutcome(s.job.id, 1, 1, 1.0, (slot + 0.5) * SLOT if s.job.id in ended else None) for s in states]
    history.happened(SlotOutcome(slot, outcomes, ()))


@pytest.fixture
def observed(tmp_path):
    with closing(History(tmp_path / HISTORY_FILE)) as history:
        lived(history, 0, [JobState(job("a0")), JobState(job("b0"))], ended={"b0"})
        reports = tuple(SpeedReport("a0", "a", at, at, speed) for at, speed in ((1, 10.0), (2, 16.0), (3, 20.0)))
        states = [JobState(job("a0"), 1.0, 1, 1, 1), JobState(job("c0", 50.0, samples=UNKNOWN_SAMPLES))]
        lived(history, 1, states, reports=reports)
        found = ObservedCluster(history)
        found.catch_up()
        yield found


def worlds(observed, seed=0, count=40):
    return Worlds(observed, count, np.random.default_rng(seed))


def test_a_seed_gives_the_same_worlds_and_scenes_and_another_one_others(observed):
    some, same, others = (worlds(observed, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(some.speeds[9].grid(model), same.speeds[9].grid(model)) for model in "abc")
    assert not np.array_equal(some.speeds[9].grid("a"), others.speeds[9].grid("a"))
    assert some.day() == same.day() != others.day()
    assert some.future() == same.future()


def test_worlds_agree_where_speeds_were_reported_and_less_the_farther_off(observed):
    logs = np.log([each.grid("a")[1:, 1:] for each in worlds(observed).speeds])
    spread = logs.std(axis=0)
    assert np.exp(logs.mean(axis=0))[[0, 1, 2], [0, 1, 2]] == pytest.approx([10.0, 16.0, 20.0], rel=0.02)
    assert spread[[0, 1, 2], [0, 1, 2]].max() < 0.03 < 0.1 < spread[2, 0]


def test_hopeful_worlds_are_as_fast_where_speeds_were_reported_and_faster_elsewhere(observed):
    found = worlds(observed, count=2)
    lifts = [
        lifted.grid("a")[1:, 1:] / grid.grid("a")[1:, 1:]
        for lifted, grid in zip(found.hopeful.speeds, found.speeds, strict=True)
    ]
    assert lifts[0] == pytest.approx(lifts[1]), "as much in each"
    assert lifts[0][[0, 1, 2], [0, 1, 2]] == pytest.approx(1.0, abs=0.02)
    assert lifts[0][2, 0] > 1.05


def test_draws_are_functions_not_independent_points(observed):
    logs = np.log([each.grid("a")[1:, 1:] for each in worlds(observed).speeds])
    assert np.corrcoef(logs[:, 2, 0], logs[:, 1, 0])[0, 1] > 0.5


def test_types_that_have_not_reported_borrow_from_others(observed):
    grids = np.array([each.grid("c") for each in worlds(observed).speeds])
    middle = float(np.median(grids[:, 1, 1]))
    assert 3.0 < middle < 30.0, "as fast as the type that has, which trains 10 samples a second"
    assert np.log(grids[:, 1, 1]).std() > 0.2


def test_nothing_is_known_of_epochs_but_what_owners_say_until_a_job_has_ended(observed, tmp_path):
    with closing(History(tmp_path / "other.sqlite")) as history:
        truth = [job(name, epochs=epochs, estimate=5.0) for name, epochs in (("a0", 7.0), ("a1", 6.0), ("a2", 9.0))]
        states = [JobState(each, done) for each, done in zip(truth, (0.0, 5.0, 1.0), strict=True)]
        lived(history, 0, states, ended={"a1", "a2"})  # the last one was stopped
        found = ObservedCluster(history)
        found.catch_up()
        assert [(each.epochs, each.estimate) for each in jobs_that_came(found.jobs.by_key.values())] == [
            (5.0, 5.0),
            (6.0, 5.0),
            (5.0, 5.0),
        ]
        future = worlds(found, count=1).future().jobs
        assert future[0].epochs == 5.0
        assert {each.epochs for each in future[3:]} == {5.0, 6.0}


def test_jobs_that_stopped_early_come_again_as_short_as_they_were():
    known = [KnownJob(job(f"a{at}", SLOT * at), needed=needed) for at, needed in enumerate((0.25, 1.0, None, 0.0, 3.0))]
    said = known[0].job.estimate
    found = jobs_that_came(known)
    assert [each.epochs for each in found] == [pytest.approx(said * each) for each in (0.25, 1.0, 1.0, 1.0, 3.0)]
    assert {each.estimate for each in found} == {said}, "what policies see"


def test_a_day_has_the_jobs_and_the_gaps_of_the_past(observed):
    day = drawn_day(observed.jobs.by_key.values(), observed.now + SLOT, 30, 1e9, np.random.default_rng(0))
    arrivals = [each.arrival for each in day]
    assert len({each.id for each in day}) == len(day) == 30
    assert {each.model for each in day} == {"a", "b", "c"}
    assert set(np.round(np.diff(arrivals), 6)) == {0.0, 50.0, 60.0}, "two came at once; a slot ends the past"
    assert len(drawn_day(observed.jobs.by_key.values(), observed.now + SLOT, 30, 60.0, np.random.default_rng(0))) < 5


@pytest.mark.parametrize("ahead", [2 * 86_400.0, 365 * 86_400.0])
def test_no_day_is_empty_for_a_holiday_or_a_job_that_came_when_the_clock_was_ahead(ahead):
    known = [KnownJob(job(f"a{number}", 2 * SLOT * number + ahead * (number == 30))) for number in range(60)]
    until, length = max(each.job.arrival for each in known) + SLOT, 200 * SLOT
    days = [drawn_day(known, until, 60, length, np.random.default_rng(seed)) for seed in range(20)]
    assert min(map(len, days)) >= 1
    assert np.mean([len(day) for day in days]) > 30
    later = drawn_day(known[:30], until, 60, length, np.random.default_rng(0))
    assert later, "nor because none has come since for long"


def test_a_future_begins_with_the_present_as_far_as_it_is(observed):
    scene = worlds(observed).future()
    present, coming = scene.jobs[:2], scene.jobs[2:]
    assert [each.id for each in present] == ["a0", "c0"]
    assert [state.epochs_done for state in scene.begun] == [1.0, 0.0]
    assert all(each.arrival < PRESENT * SLOT <= later.arrival for each in present for later in coming)
    assert all(each.samples_known for each in scene.jobs), "what a job has not told is guessed"


def test_a_scene_of_the_past_has_the_same_arrivals(observed):
    scene = worlds(observed).past()
    assert [(each.id, each.arrival) for each in scene.jobs] == [("a0", 60.0), ("b0", 60.0), ("c0", 110.0)]
    assert not scene.begun


def test_a_scene_of_the_past_has_the_last_jobs_where_few_come(history):
    """A judge ends it after 400 slots: of 60 jobs that came in 1,200 it played those of long ago, and none of late."""
    states = [JobState(job(f"a{number}", number * 20 * SLOT)) for number in range(60)]
    lived(history, 0, states)
    found = ObservedCluster(history)
    found.catch_up()
    jobs = worlds(found, count=1).past().jobs
    assert [each.id for each in jobs] == [f"a{number}" for number in range(47, 60)]
    assert [each.arrival / SLOT for each in jobs] == [PRESENT + 10.0 + 20.0 * number for number in range(13)]


def test_jobs_that_fit_no_node_any_more_are_in_no_scene(history):
    """They would wait to its end under any policy, and the others would hardly count."""
    large = replace(job("d0"), worker={"slots": 13.0})
    for slot, states in enumerate(([JobState(job("a0")), JobState(large)], [JobState(large)])):
        lived(history, slot, states)
        found = ObservedCluster(history)
        found.catch_up()
        assert can_be_played(found) == (not slot), "nothing can be done about the present"
        if not slot:
            drawn = worlds(found, count=1)
            scenes = [drawn.past(), drawn.day(), drawn.future()]
            assert {each.model for scene in scenes for each in scene.jobs} == {"a"}
            assert [state.job.id for state in scenes[-1].begun] == ["a0"]


def test_whether_jobs_fit_is_tried_once_for_all_that_ask_for_the_same(monkeypatch):
    """A queue may have thousands, and each trial goes through all nodes."""
    tried = []
    monkeypatch.setattr(
        "dl2_scheduler.cluster.free_resources.fits", lambda job, nodes: tried.append(job.id) or job.id < "b"
    )
    alike = [job(name) for name in ("a0", "b0", "c0")]
    jobs = [*alike, replace(alike[1], worker={"slots": 2.0}), replace(alike[2], min_workers=2)]
    assert list(which_fit(jobs, NODES)) == [True, True, True, False, False]
    assert tried == ["a0", "b0", "c0"]


def test_what_a_scaling_costs_is_spread_over_the_time_for_which_it_lasts():
    grid = np.outer([0.0, 1.0, 2.0], [0.0, 10.0, 20.0])
    cost = ScalingCost(start=30.0, change=6.0, join=18.0)
    long = job("a0", samples=1e6)  # three slots, as it does not end before
    waits, runs = JobState(long), JobState(long, workers=1, servers=2)
    assert paying_speeds(waits, grid, cost, SLOT) == pytest.approx(grid * 180 / 210)
    found = paying_speeds(runs, grid, cost, SLOT)
    assert found[2, 1] == 20.0
    assert found[1, 1] == pytest.approx(10.0 * 29 / 30)
    assert found[2, 2] == pytest.approx((2 * 20.0 + 27 * 40.0) / 30)


def test_of_jobs_that_end_soon_a_scaling_costs_more():
    grid = np.outer([0.0, 1.0], [0.0, 10.0, 20.0])
    cost = ScalingCost(start=30.0, join=30.0)
    ends = job("a0", epochs=1.0, samples=1600.0)  # after 160 s with one worker, 80 s with two
    found = paying_speeds(JobState(ends), grid, cost, SLOT)
    assert found[1].tolist() == pytest.approx([0.0, 10 * 160 / 190, 20 * 80 / 110])
    assert paying_speeds(JobState(ends, workers=1, servers=1), grid, cost, SLOT)[1, 2] == pytest.approx(
        (30 * 10 + 50 * 20) / 80
    )


def test_a_job_that_has_more_than_it_may_have_now_pays_as_from_the_most_that_it_may():
    grid = np.outer([0.0, 1.0], [0.0, 10.0, 20.0])
    cost = ScalingCost(start=30.0, change=6.0, join=18.0)
    found = [paying_speeds(JobState(job("a0"), workers=n, servers=m), grid, cost, SLOT) for n, m in ((2, 1), (5, 3))]
    assert (found[0] == found[1]).all()


def test_a_start_that_takes_longer_than_a_slot_is_worth_it():
    grid = np.outer([0.0, 1.0], [0.0, 10.0, 20.0])
    found = paying_speeds(JobState(job("a0", samples=1e6)), grid, ScalingCost(start=5 * SLOT), SLOT)
    assert (found[1, 1:] > 0.3 * grid[1, 1:]).all()


def test_jobs_of_many_tasks_are_drawn_in_little_memory():
    fitted = FittedSpeeds()
    fitted.observe([SpeedReport("a0", "a", 200, 200, 50.0)])
    found = fitted.drawn(Job("a0", 0.0, "a", 1.0, 1.0, ONE, ONE, 128, 256), np.random.default_rng(0))
    assert found.shape == (257, 129)
    assert found[1:, 1:].min() > 0


def test_days_are_drawn_after_a_clock_was_set_back(history):
    """More jobs than are drawn from came later than now, as the clock has it."""
    before = [job(f"a{number}", 90_000.0 + number) for number in range(201)]
    lived(history, 0, list(map(JobState, before)), ended={each.id for each in before})
    lived(history, 1, [JobState(job("c0", 1000.0))])
    observed = ObservedCluster(history)
    observed.catch_up()
    assert {each.model for each in worlds(observed).day().jobs} == {"a"}
    assert observed.now == 90_200.0
