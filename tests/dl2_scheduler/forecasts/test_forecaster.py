"""What is forecast of a simulated cluster's jobs, and what the forecaster learns from what comes true."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.forecast import Forecast
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import JobOutcome, SlotOutcome
from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.cluster.snapshot import NOTHING, Allocation, Grant, JobState, Snapshot
from dl2_scheduler.forecasts.calibration import RawForecast
from dl2_scheduler.forecasts.drawn_world import WorldDraws
from dl2_scheduler.forecasts.ensemble import KnownSpeeds, _future, play_futures, with_known_speeds
from dl2_scheduler.forecasts.forecaster import Forecaster, SlotForecasts, as_line, of_message
from dl2_scheduler.forecasts.process import ForecastObserver
from dl2_scheduler.forecasts.records import FORECASTS_FILE, EventKind, ForecastRecords, MadeForecast
from dl2_scheduler.live.history import History
from dl2_scheduler.live.serve_the_waiting import MOST_SLOTS
from dl2_scheduler.policies.registry import make_live_policy
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.sim.lanes import ScalingCost
from dl2_scheduler.world_model.observed import ObservedCluster
from tests.dl2_scheduler.hearing import kill, listen
from tests.dl2_scheduler.learning.test_live_learning import NODES, SLOT, job, live
from tests.dl2_scheduler.recorded_starts import ALL, REPORTS, wide


@pytest.fixture
def records(tmp_path):
    with closing(ForecastRecords(tmp_path / FORECASTS_FILE)) as found:
        yield found


def forecaster(history, records, members=4):
    return Forecaster(history, NodeRule.SPREAD, records, make_live_policy, members)


def runs_and_waits(history, slot=0, done=0.0):
    """One job has all nodes, and trains 160 samples a slot; the other waits for its end."""
    states = (JobState(wide(0, 8.0), done, slot, *((4, 4) if slot else (0, 0))), JobState(wide(2, 8.0)))
    grants = Allocation({"a0": Grant(4, 4), "a2": NOTHING})
    history.decided(1e9 + slot * SLOT, "fifo", Snapshot(slot, SLOT, NODES, states, REPORTS), grants)
    return states


def test_a_job_that_waits_starts_when_the_one_before_it_ends(history, records):
    runs_and_waits(history)
    found = forecaster(history, records).forecast()
    first, second = found.by_job["a0"], found.by_job["a2"]
    assert found.slot == 0
    assert first.made == 1e9
    assert first.start is None, "it has been granted its tasks"
    assert first.end.at == pytest.approx(1e9 + 8 * 200 / 40, abs=SLOT / 2)
    assert first.end.low < first.end.at < first.end.high
    assert second.start.at == pytest.approx(1e9 + SLOT, abs=SLOT / 4)
    assert second.end.at > second.start.at
    assert of_message(json.loads(as_line(found))) == found


def test_a_job_that_has_waited_for_long_is_about_to_start(history, records):
    """The policy would starve it; the live loop does not."""
    for slot in range(MOST_SLOTS):
        states = (JobState(wide(0, 8000.0), 2.0 * slot, slot, 4, 4), JobState(replace(wide(2, 8.0), min_workers=1)))
        grants = Allocation({"a0": Grant(4, 4), "a2": NOTHING})
        history.decided(1e9 + slot * SLOT, "fifo", Snapshot(slot, SLOT, NODES, states, REPORTS), grants)
    found = forecaster(history, records).forecast()
    assert found.by_job["a2"].start.at == pytest.approx(1e9 + MOST_SLOTS * SLOT, abs=SLOT / 2)


class Newest:
    """The job that came last has all that it can use, the others wait."""

    def allocate(self, snapshot, room):
        last = snapshot.jobs[-1].job
        return Allocation({last.id: Grant(last.max_workers, last.max_servers)})


@pytest.mark.parametrize("saves", [True, False])
def test_a_job_that_cannot_be_suspended_keeps_others_waiting_until_it_ends(history, records, saves):
    states = (JobState(wide(0, 80.0), 0.0, 1, 4, 4, saves=saves), JobState(wide(2, 8.0)))
    grants = Allocation({"a0": Grant(4, 4), "a2": NOTHING})
    history.decided(1e9, "newest", Snapshot(0, SLOT, NODES, states, REPORTS), grants)
    found = Forecaster(history, NodeRule.SPREAD, records, lambda name: Newest(), 4).forecast()
    waits = SLOT if saves else 80 * 200 / 40
    assert found.by_job["a2"].start.at == pytest.approx(1e9 + waits, abs=SLOT)


def test_the_same_history_gives_the_same_forecasts(history, records, tmp_path):
    runs_and_waits(history)
    with closing(ForecastRecords(tmp_path / "others.sqlite")) as others:
        assert forecaster(history, records).forecast() == forecaster(history, others).forecast()


def test_what_comes_true_is_learnt_from_once_also_after_a_restart(history, records):
    forecasting = forecaster(history, records)
    states = runs_and_waits(history)
    forecasting.forecast()
    done = (JobOutcome("a0", 4, 4, 8.0, 30.0), JobOutcome("a2", 0, 0, 0.0, None))
    history.happened(SlotOutcome(0, done, (), 0.0, SLOT))
    again = forecaster(history, records)
    again.catch_up()
    ends = again.calibrations[EventKind.END].scores
    assert len(ends) == 1
    assert records.calibration(EventKind.END).scores == ends
    history.decided(1e9 + SLOT, "fifo", Snapshot(1, SLOT, NODES, states[1:]), Allocation({"a2": Grant(4, 4)}))
    history.happened(SlotOutcome(1, (JobOutcome("a2", 4, 4, 1.0, None, since=SLOT + 7.0),), (), SLOT, 2 * SLOT))
    again.catch_up()
    (score,) = again.calibrations[EventKind.START].scores
    assert records.came_true(EventKind.START, "a2", 2.0, 1e9) == [], "it has come true already"
    assert abs(score) < 3.0


def test_a_job_that_trains_more_than_its_owner_expected_teaches_how_wrong_that_was(history, records):
    forecasting = forecaster(history, records)
    runs_and_waits(history)
    forecasting.forecast()
    done = (JobOutcome("a0", 4, 4, 12.0, 30.0), JobOutcome("a2", 0, 0, 0.0, None))
    history.happened(SlotOutcome(0, done, (), 0.0, SLOT))
    forecasting.catch_up()
    assert len(forecasting.calibrations[EventKind.END].scores) == 1
    assert forecasting.observed.jobs.needed() == [1.5]


@pytest.mark.parametrize("seconds", [8 * 3600.0, -8 * 3600.0])
def test_what_was_forecast_before_the_clock_jumped_teaches_nothing(history, records, seconds):
    forecasting = forecaster(history, records)
    runs_and_waits(history)
    forecasting.forecast()
    done = (JobOutcome("a0", 4, 4, 1.0, None), JobOutcome("a2", 0, 0, 0.0, None))
    history.happened(SlotOutcome(0, done, (), 0.0, seconds))
    states = runs_and_waits(history, 1, 1.0)
    done = (JobOutcome("a0", 4, 4, 7.0, seconds + 30.0), JobOutcome("a2", 0, 0, 0.0, None))
    history.decided(1e9 + seconds, "fifo", Snapshot(1, SLOT, NODES, states), Allocation({"a0": ALL, "a2": NOTHING}))
    history.happened(SlotOutcome(1, done, (), seconds, seconds + SLOT))
    forecasting.catch_up()
    assert not any(len(calibration) for calibration in forecasting.calibrations.values())


def ends_and_starts(history, slot, at):
    """The job that ran ends, and then the one that waited starts, in two slots from `at` on, in seconds."""
    states = (JobState(wide(0, 8.0), 1.0, slot, 4, 4), JobState(wide(2, 8.0)))
    both, second = Allocation({"a0": ALL, "a2": NOTHING}), Allocation({"a2": ALL})
    history.decided(1e9 + at, "fifo", Snapshot(slot, SLOT, NODES, states), both)
    done = (JobOutcome("a0", 4, 4, 7.0, at + 30.0), JobOutcome("a2", 0, 0, 0.0, None))
    history.happened(SlotOutcome(slot, done, (), at, at + SLOT))
    history.decided(1e9 + at + SLOT, "fifo", Snapshot(slot + 1, SLOT, NODES, states[1:]), second)
    done = (JobOutcome("a2", 4, 4, 1.0, None, since=at + SLOT + 7.0),)
    history.happened(SlotOutcome(slot + 1, done, (), at + SLOT, at + 2 * SLOT))


@pytest.mark.parametrize(("seconds", "scores"), [(SLOT, 1), (SLOT + 8 * 3600.0, 0), (SLOT - 8 * 3600.0, 0)])
def test_what_was_forecast_before_no_scheduler_ran_for_hours_teaches_nothing(history, records, seconds, scores):
    """Jobs that wait do so all that time, whatever was forecast."""
    runs_and_waits(history)
    forecaster(history, records).forecast()
    done = (JobOutcome("a0", 4, 4, 1.0, None), JobOutcome("a2", 0, 0, 0.0, None))
    history.happened(SlotOutcome(0, done, (), 0.0, SLOT))
    again = forecaster(history, records)
    ends_and_starts(history, 1, seconds)
    again.catch_up()
    assert {kind: len(found) for kind, found in again.calibrations.items()} == dict.fromkeys(EventKind, scores)


def test_what_was_forecast_of_a_job_before_its_owner_held_it_teaches_nothing(history, records):
    """No policy decides about it meanwhile; what is forecast once it is released counts, also after a restart."""
    forecasting = forecaster(history, records)
    states = runs_and_waits(history)
    forecasting.forecast()
    runs, waits = JobOutcome("a0", 4, 4, 0.1, None), JobOutcome("a2", 0, 0, 0.0, None)
    history.happened(SlotOutcome(0, (runs, waits), (), 0.0, SLOT))
    for slot in range(1, 6):
        now = JobState(wide(0, 8.0), 1.0, slot, 4, 4)
        history.decided(1e9 + slot * SLOT, "fifo", Snapshot(slot, SLOT, NODES, (now,)), Allocation({"a0": ALL}))
        history.happened(SlotOutcome(slot, (runs,), (), slot * SLOT, (slot + 1) * SLOT))
    released = Snapshot(6, SLOT, NODES, (now, states[1]), REPORTS)
    history.decided(1e9 + 6 * SLOT, "fifo", released, Allocation({"a0": ALL, "a2": NOTHING}))
    forecasting.forecast()
    history.happened(SlotOutcome(6, (runs, waits), (), 6 * SLOT, 7 * SLOT))
    again = forecaster(history, records)
    ends_and_starts(history, 7, 7 * SLOT)
    again.catch_up()
    (score,) = again.calibrations[EventKind.START].scores
    assert abs(score) < 6.0, "it was forecast a slot and a half before it started, not seven"


def test_an_owner_who_expected_next_to_nothing_spoils_no_forecast_of_jobs_to_come(history, records):
    """One who wrote `epochs: 0.000001` was wrong by a factor that leads others' jobs beyond what can be simulated."""
    past = [replace(job(number, 0.0), epochs=1e-6 if number < 6 else 1e6) for number in range(12)]
    states = tuple(map(JobState, past))
    granted = {each.id: Grant(1, 1) if number < 6 else NOTHING for number, each in enumerate(past)}
    history.decided(1e9, "drf", Snapshot(0, SLOT, NODES, states, REPORTS), Allocation(granted))
    done = [JobOutcome(each.id, 1, 1, 40.0, 30.0) for each in past[:6]]
    history.happened(SlotOutcome(0, done, (), 0.0, SLOT))
    waiting = Allocation({each.id: NOTHING for each in past[6:]})
    history.decided(1e9 + SLOT, "drf", Snapshot(1, SLOT, NODES, states[6:], REPORTS), waiting)
    assert forecaster(history, records).forecast() is not None


def test_jobs_that_were_stopped_teach_nothing(history, records):
    forecasting = forecaster(history, records)
    runs_and_waits(history)
    forecasting.forecast()
    done = (JobOutcome("a0", 4, 4, 3.0, 30.0), JobOutcome("a2", 0, 0, 0.0, 40.0))
    history.happened(SlotOutcome(0, done, (), 0.0, SLOT))
    forecasting.catch_up()
    assert not any(len(calibration) for calibration in forecasting.calibrations.values())
    assert records.came_true(EventKind.END, "a0", 0.0, 1e9 + 30.0) == []


def test_while_the_cluster_is_idle_nothing_is_forecast_again(history, records):
    """Slots without jobs are in no history: the last one's forecasts filled the records, and pushed out all scores."""
    forecasting = forecaster(history, records)
    runs_and_waits(history)
    assert forecasting.forecast() is not None
    assert forecasting.forecast() is None
    done = (JobOutcome("a0", 4, 4, 8.0, 30.0), JobOutcome("a2", 0, 0, 0.0, 40.0))
    history.happened(SlotOutcome(0, done, (), 0.0, SLOT))
    assert forecasting.forecast() is None
    assert records.came_true(EventKind.END, "a0", 0.0, 1e9 + 30.0) == []


def test_old_forecasts_are_forgotten(records, monkeypatch):
    monkeypatch.setattr("dl2_scheduler.forecasts.records._MOST_PENDING", 3)
    for number in range(5):
        records.add([MadeForecast(EventKind.END, f"j{number}", 0.0, 1e9, RawForecast(10.0, 0.1, SLOT))])
    told = [bool(records.came_true(EventKind.END, f"j{number}", 0.0, 1e9 + 10.0)) for number in range(5)]
    assert told == [False, False, True, True, True]


def test_nothing_to_forecast(history, records):
    assert forecaster(history, records).forecast() is None
    too_large = replace(job(0, 0.0), worker={"slots": 13.0})
    state = (JobState(too_large),)
    history.decided(1e9, "drf", Snapshot(0, SLOT, NODES, state), Allocation({"a0": NOTHING}))
    assert forecaster(history, records).forecast() is None, "it fits no node"


def test_time_runs_out(history, records, caplog):
    caplog.set_level("INFO")
    runs_and_waits(history)
    assert forecaster(history, records, members=10_000).forecast(seconds=0.2) is not None
    assert "of 10000 futures" in caplog.text
    assert forecaster(history, records).forecast(seconds=0.0) is None


def test_that_there_is_too_little_time_is_logged_when_it_begins_and_when_it_ends(history, records, caplog):
    caplog.set_level("INFO")
    forecasting = forecaster(history, records, members=16)
    for futures in (16, 3, 5, 16, 16):
        forecasting._tell_of_few(futures)
    assert [line.split(": ")[-1] for line in caplog.messages] == [
        "there was time for 3 of 16 futures",
        "there was time for 16 of 16 futures",
    ]


def observed_after(history, folder, slots, jobs=14):
    loop, _, cluster = live(history, folder, jobs=jobs)
    cluster.lanes.speed_factor[0] = np.where(np.arange(jobs) % 2, 0.7, 1.4)
    for _ in range(slots):
        loop.slot()
    observed = ObservedCluster(history)
    observed.catch_up()
    return observed


def test_a_world_is_drawn_from_what_jobs_have_shown(history, tmp_path):
    observed = observed_after(history, tmp_path, 12)
    now = observed.present
    world = WorldDraws(observed, now).draw((1, 2))
    factors = [each.factor for each in world.present]
    told = [observed.jobs.by_key[each.job.id, each.job.arrival].log_factor(observed.fitted) for each in world.present]
    assert all(
        np.log(factor) == pytest.approx(own) for factor, own in zip(factors, told, strict=True) if own is not None
    )
    assert all(each.job.arrival > 0.0 for each in world.later)
    assert 0 < len(world.later) <= 14, "no more than have come"
    assert {each.job.model for each in world.later} <= {"a", "b"}
    few = observed_after(History(tmp_path / "few.sqlite"), tmp_path, 3)
    assert WorldDraws(few, few.present).draw((1, 2)).later == (), "too few have come to tell"


def test_a_job_comes_after_the_time_that_passed_before_it_and_not_before_the_next_one(history):
    """After a quiet night a burst came as it had come, but without its first job, and with one more at its end."""
    jobs = [job(number, 100.0 * ((number + 1) // 2) + number // 2) for number in range(14)]
    states = tuple(JobState(replace(each, model="ab"[number % 2])) for number, each in enumerate(jobs))
    grants = {state.job.id: NOTHING for state in states}
    history.decided(1e9, "drf", Snapshot(0, SLOT, NODES, states, REPORTS), Allocation(grants))
    observed = ObservedCluster(history)
    observed.catch_up()
    later = WorldDraws(observed, observed.present).draw((1, 2)).later
    gaps = np.diff([0.0, *(each.job.arrival for each in later)]).round(6)
    found = {model: {gap for gap, each in zip(gaps, later, strict=True) if each.job.model == model} for model in "ab"}
    assert found["b"] == {100.0}
    assert found["a"] <= {0.0, 1.0}, "the last one came at the end of what is known"


def test_jobs_that_come_at_once_keep_what_was_drawn_of_each(history):
    """Kubernetes tells seconds: what somebody submits in a loop has one time of creation."""
    states = tuple(JobState(replace(job(number, 0.0), epochs=1.0 + number)) for number in range(14))
    grants = {state.job.id: NOTHING for state in states}
    history.decided(1e9, "drf", Snapshot(0, SLOT, NODES, states, REPORTS), Allocation(grants))
    observed = ObservedCluster(history)
    observed.catch_up()
    world = WorldDraws(observed, observed.present).draw((1, 2))
    assert len({each.job.arrival for each in world.later[8:]}) < len(world.later[8:])
    lanes = _future(observed, observed.present, world, Drf()).cluster.lanes
    later = slice(len(states), None)
    assert lanes.epochs[0, later].tolist() == [each.epochs for each in lanes.jobs[0][later]]


@pytest.mark.parametrize("speaks", [None, 9])
def test_forecasts_of_before_a_restart_stay_until_there_are_others(tmp_path, monkeypatch, speaks):
    """Each restart on Kubernetes took `status.forecast` from all jobs, until the next slot."""
    side, told = SimpleNamespace(said=list, close=lambda: None), []
    monkeypatch.setattr("dl2_scheduler.forecasts.process.SideProgram", lambda *given: side)
    observer = ForecastObserver(tmp_path, NodeRule.SPREAD, lambda found: told.append((observer._slot, set(found))))
    made = json.loads(as_line(SlotForecasts(8, {"a": Forecast(7.0, None, None)})))
    for slot in range(7, 15):
        side.said = lambda slot=slot: [made] if slot == speaks else [{"slot": slot, "error": "too little time"}]
        observer.before(slot)
    if speaks is None:
        assert told == [(13, set()), (14, set())]
    else:
        assert told == [*((slot, {"a"}) for slot in range(9, 14)), (14, set())]


def test_what_fits_no_node_moves_nothing_that_is_drawn_of_others(history, tmp_path):
    """Else what is told of fewer nodes would differ by chance, too."""
    observed = observed_after(history, tmp_path, 12)
    for known in list(observed.jobs.by_key.values())[::3]:
        known.job = replace(known.job, worker={"slots": 9.0})
    first, *others = observed.present.jobs
    large = replace(first, job=replace(first.job, worker={"slots": 9.0}))
    now = replace(observed.present, jobs=(large, *others))
    many, few = (
        WorldDraws(observed, replace(now, nodes=(Node("n", {"slots": slots}),))).draw((1, 2)) for slots in (12.0, 8.0)
    )
    assert few.present == many.present[1:]
    assert few.later == tuple(each for each in many.later if each.job.worker["slots"] < 9.0)
    assert 0 < len(few.later) < len(many.later)


@pytest.mark.parametrize(("model", "known"), [("a", True), ("stranger", False)])
def test_a_job_that_is_only_supposed_is_as_long_as_its_type_tells(history, tmp_path, model, known):
    observed = observed_after(history, tmp_path, 12)
    supposed = JobState(replace(job(0, 1e6), id="new", model=model))
    draws = WorldDraws(observed, replace(observed.present, jobs=(*observed.present.jobs, supposed)))
    factors = [np.log(draws.draw((1, seed)).present[-1].factor) for seed in range(8)]
    assert all(np.isclose(factor, draws._factors).any() for factor in factors) == known


def test_owners_are_as_wrong_as_they_were(history, tmp_path):
    observed = observed_after(history, tmp_path, 3)
    for each in list(observed.jobs.by_key.values())[:2]:
        each.needed = 1.5
    now = observed.present
    draws = WorldDraws(observed, now)
    random = np.random.default_rng(1)
    assert draws._epochs(8.0, 2.0, random) == 12.0
    assert draws._epochs(8.0, 13.0, random) == pytest.approx(13.4), "nobody was as wrong as that"


def test_futures_rest_on_the_drawn_speeds_and_on_the_slot_that_was_decided(history, tmp_path):
    observed = observed_after(history, tmp_path, 6)
    nothing = Allocation({state.job.id: NOTHING for state in observed.present.jobs})
    soon, late = (
        play_futures(observed, Drf(), NodeRule.SPREAD, 1, members=3, decided=decided) for decided in (None, nothing)
    )
    assert soon.ends.shape == (3, len(observed.present.jobs))
    assert np.isfinite(soon.ends).all()
    assert late.ends.mean() > soon.ends.mean() + 0.5 * SLOT


def test_a_job_that_waits_does_not_start_later_by_what_the_end_of_another_takes(history, tmp_path):
    """In the cost of a start, as simulations have it, there is that of an end, too."""
    runs_and_waits(history)
    observed = ObservedCluster(history)
    observed.catch_up()
    observed._costs = SimpleNamespace(scaling=ScalingCost(5.0 + 7.0), start_seconds=5.0)
    decided, policy = observed.last.allocation, make_live_policy("fifo")
    futures = play_futures(observed, policy, NodeRule.SPREAD, 1, members=3, decided=decided)
    assert (futures.starts[:, 1] % SLOT).tolist() == [5.0] * 3


def test_policies_that_fit_speeds_play_with_those_that_jobs_reported(history, tmp_path):
    observed = observed_after(history, tmp_path, 6)
    policy = with_known_speeds(make_live_policy("planner"), observed.fitted)
    assert isinstance(policy.speeds, KnownSpeeds)
    wanted = job(0, 0.0)
    before = policy.speeds.grid(wanted)
    policy.speeds.observe(REPORTS)
    assert policy.speeds.grid(wanted) is before
    assert before is observed.fitted.grid(wanted), "without the hope with which a live planner explores"
    assert with_known_speeds(Drf(), observed.fitted) == Drf()


@pytest.mark.slow
def test_the_forecaster_beside_the_loop(history, tmp_path):
    loop, _, _ = live(history, tmp_path)
    with closing(ForecastObserver(tmp_path, NodeRule.SPREAD)) as observer:
        loop._observers, heard = (observer,), listen(observer._side)
        loop.slot()
        heard.wait()
        assert observer.forecasts["a0"].made == 1e9
        kill(observer._side)
        loop.slot()
        heard.wait()
        assert {each.made for each in observer.forecasts.values()} == {1e9 + SLOT}, "it was started again"
        observer.before(7)
        assert observer.forecasts == {}, "it was made too long ago"


@pytest.mark.parametrize(("length", "score"), [(1, "'no number'"), (1, "x'00'"), (0, 1.0)])
def test_records_that_cannot_be_read_say_what_to_do(tmp_path, length, score):
    path = tmp_path / FORECASTS_FILE
    with closing(ForecastRecords(path)):
        pass
    with closing(sqlite3.connect(path)) as database, database:
        values = f"('start', 'a', 0, 0, 1, 1, {length}, {score})"
        names = "(kind, job, arrival, made, seconds, deviation, slot_seconds, score)"
        database.execute(f"INSERT INTO forecasts {names} VALUES {values}")
    with closing(ForecastRecords(path)) as records, pytest.raises(BadInput, match=r"forecasts\.sqlite.*delete it"):
        records.calibration(EventKind.START).seconds(RawForecast(60.0, 0.1, 60.0), (0.5,))
