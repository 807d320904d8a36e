"""From a history to what the simulator takes, and its decisions asked again."""

import math
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import JobOutcome, SlotOutcome
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobState, Snapshot, SpeedReport
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.live.history import HISTORY_FILE, History
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.live.slot_decision import answer
from dl2_scheduler.policies.registry import make_live_policy, make_policy
from dl2_scheduler.replay.asked_again import ask_again
from dl2_scheduler.replay.measured import fit_speeds
from dl2_scheduler.replay.past import past_jobs
from dl2_scheduler.replay.predicted import predict
from dl2_scheduler.sim.lanes import MEASURED, NO_COST
from dl2_scheduler.sim.simulator import SimulatedCluster
from dl2_scheduler.sim.speeds import read_points
from dl2_scheduler.sim.trace import read_trace
from dl2_scheduler.world_model.known_jobs import KnownJobs

TASK = {"slots": 1.0}
NODES = (Node("n0", {"slots": 8.0}), Node("n1", {"slots": 8.0}))
MOST = 4


def true_speeds():
    servers, workers = np.mgrid[0 : MOST + 2, 0 : MOST + 2].astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        grid = np.nan_to_num(100.0 / (1 / workers + 0.1 * workers / servers + 0.05))
    grid[0], grid[:, 0] = 0.0, 0.0
    return Speeds({"vision": grid, "text": grid / 4})


def trace():
    models = ("vision", "text")
    return [Job(f"job-{n}", 40.0 * n, models[n % 2], 20.0 + n, 500.0, TASK, TASK, MOST, MOST) for n in range(12)]


@pytest.fixture(scope="module")
def lived():
    """Slots of a simulated cluster under drf, as a live one records them."""
    cluster, policy, slots = (
        SimulatedCluster(trace(), NODES, true_speeds(), slot_seconds=30.0),
        make_policy("drf", Speeds({})),
        [],
    )
    while not cluster.done:
        snapshot = cluster.snapshot()
        (asked,) = ask_again(
            [RecordedSlot(0, "drf", snapshot, Allocation(), None)], None, lambda _: policy, NodeRule.SPREAD
        )
        allocation = Allocation({job: Grant(*counts) for job, counts in asked.again.items()})
        cluster.apply(allocation)
        slots.append(RecordedSlot(1e9 + snapshot.slot * 30, "drf", snapshot, allocation, cluster.finish_slot()))
    return slots


def test_the_table_has_what_was_measured_and_fits_the_rest(lived):
    table, true = fit_speeds(lived), true_speeds()
    assert [each.model for each in table.types] == ["text", "vision"]
    assert len(table.rows) == 2 * MOST * MOST
    measured = [row for row in table.rows if row.observations]
    assert 0 < len(measured) < len(table.rows)
    for row in table.rows:
        wanted = true.of(row.model, row.servers, row.workers)
        assert row.samples_per_second == pytest.approx(wanted, rel=1e-9 if row.observations else 0.4)
    for each in table.types:
        assert each.observations == sum(row.observations for row in measured if row.model == each.model)
        assert each.error < 0.2


def report(job, speed, servers=1, workers=1):
    return SpeedReport(job, "m", servers, workers, speed)


def slot(reports, before=(1, 1)):
    job = Job("a", 0.0, "m", 10.0, 100.0, TASK, TASK, 2, 2)
    snapshot = Snapshot(3, 30.0, NODES, (JobState(job, 1.0, 1, *before),))
    done = JobOutcome("a", 1, 1, 1.0, None)
    return RecordedSlot(0.0, "drf", snapshot, Allocation({"a": Grant(1, 1)}), SlotOutcome(3, [done], tuple(reports)))


def test_errors_are_those_of_the_mean_and_a_slot_of_change_tells_nothing():
    table = fit_speeds(
        [slot([report("a", speed)]) for speed in (9.0, 10.0, 11.0)] + [slot([report("a", 99.0)], (0, 0))]
    )
    (row,) = [row for row in table.rows if row.observations]
    assert (row.samples_per_second, row.observations) == (10.0, 3)
    assert row.relative_error == pytest.approx(1 / 3**0.5 / 10)
    assert math.isnan(table.types[0].error)


class OneOfEach:
    def allocate(self, snapshot, room):
        return Allocation({state.job.id: Grant(1, 1) for state in snapshot.jobs})


@pytest.mark.parametrize("most", [1, 100])
def test_jobs_that_may_have_one_task_of_each_role_or_a_hundred_can_be_simulated(most):
    """A table with one row of a type is refused by who reads it, as is one with more than 5,000."""
    measured = slot([report("a", 10.0)])
    (state,) = measured.snapshot.jobs
    state = replace(state, job=replace(state.job, max_workers=most, max_servers=most))
    lived = replace(measured, snapshot=replace(measured.snapshot, jobs=(state,)))
    table = fit_speeds([lived])
    assert 2 <= len(table.rows) <= 64 * 64
    assert max((row.servers, row.workers) for row in table.rows) == (most, max(most, 2))
    (found,) = predict([lived], table, OneOfEach(), NodeRule.SPREAD, NO_COST)
    assert found.seconds == pytest.approx(10.0 * 100.0 / 10.0)


def test_jobs_that_do_not_fit_the_last_nodes_keep_no_others_from_being_simulated():
    """Nodes may have gone since, and held jobs take some of what is told of them."""
    measured = slot([report("a", 10.0)])
    large = Job("large", 0.0, "m", 9.0, 100.0, TASK, TASK, 8, 8, 8, 8)
    seen = replace(measured.snapshot, jobs=(*measured.snapshot.jobs, JobState(large)))
    before = replace(measured, snapshot=seen, allocation=Allocation({"a": Grant(1, 1), "large": Grant(0, 0)}))
    after = replace(measured, snapshot=replace(measured.snapshot, slot=4, nodes=NODES[:1]))
    lived, found = [before, after], {}
    for slots in (lived[:1], lived):
        past = predict(slots, fit_speeds(slots), make_live_policy("drf"), NodeRule.SPREAD, NO_COST)
        found[len(slots)] = [each.past.job.id for each in past]
    assert found == {1: ["a", "large"], 2: ["a"]}


def test_what_was_measured_is_in_a_table_that_leaves_out_counts():
    speeds = {(3, 97): 50.0, (99, 1): 7.0}
    states = [JobState(Job(f"a{at}", 0.0, "m", 10.0, 100.0, TASK, TASK, 100, 100), 1.0, 1, *at[::-1]) for at in speeds]
    told = tuple(report(f"a{at}", speed, *at) for at, speed in speeds.items())
    grants = Allocation({state.job.id: Grant(state.workers, state.servers) for state in states})
    done = [JobOutcome(state.job.id, state.workers, state.servers, 1.0, None) for state in states]
    lived = RecordedSlot(0.0, "drf", Snapshot(3, 30.0, NODES, tuple(states)), grants, SlotOutcome(3, done, told))
    measured = [row for row in fit_speeds([lived]).rows if row.observations]
    assert {(row.servers, row.workers): row.samples_per_second for row in measured} == speeds


def test_jobs_without_servers_are_simulated_only_if_such_jobs_of_their_type_were_measured():
    ring = JobState(Job("ring", 0.0, "m", 9.0, 100.0, TASK, TASK).without_servers())
    measured = slot([report("a", 10.0)])
    seen = replace(measured.snapshot, jobs=(*measured.snapshot.jobs, ring))
    done = [*measured.outcome.jobs, JobOutcome("ring", 0, 0, 0.0, None)]
    lived = replace(measured, snapshot=seen, outcome=replace(measured.outcome, jobs=done))
    found = predict([lived], fit_speeds([lived]), make_live_policy("drf"), NodeRule.SPREAD, MEASURED)
    assert [each.past.job.id for each in found] == ["a"]


def test_counts_above_maxima_that_were_lowered_are_fitted_too():
    reports = [[report("a", 10.0 * count, count, count)] for count in (1, 2, 3)]
    fitted = fit_speeds([slot(each, (count, count)) for count, each in enumerate(reports, start=1)])
    assert (fitted.types[0].configurations, fitted.types[0].error < 0.5) == (3, True)
    assert {(row.servers, row.workers) for row in fitted.rows if row.observations} == {(1, 1), (2, 2), (3, 3)}


def last_slot(epochs, before=(1, 1), told=True):
    """Job a, which trains 0.1 epochs a second, ends by itself after 20 s, though it has told nothing of the end."""
    job = Job("a", 0.0, "m", 1.0 + epochs, 100.0, TASK, TASK, 2, 2)
    reports = (report("a", 10.0),) if told else ()
    now = Snapshot(3, 30.0, NODES, (JobState(job, 1.0, 1, *before),), reports)
    outcome = SlotOutcome(3, [JobOutcome("a", 1, 1, epochs, 110.0)], (), 90.0, 110.0)
    return RecordedSlot(0.0, "drf", now, Allocation({"a": Grant(1, 1)}), outcome)


@pytest.mark.parametrize(
    ("lived", "needed"),
    [
        (last_slot(2.0), 1.0),
        (last_slot(4.0), 1.0),  # it may have told how far it is a slot ago
        (last_slot(99.0), 0.03),  # it has stopped early
        (last_slot(99.0, before=(2, 2)), 1.0),  # nobody knows how fast it was with the tasks that it got
        (last_slot(99.0, told=False), 1.0),
    ],
)
def test_a_job_that_stops_early_has_not_trained_all_its_epochs(lived, needed):
    (past,) = past_jobs([lived])
    assert (past.seconds is not None) == (needed == 1.0)
    known = KnownJobs()
    known.see(lived)
    known.observe(lived)
    assert known.needed() == pytest.approx([needed])


def test_a_history_without_speeds_says_so():
    with pytest.raises(BadInput, match="no job has told its speed in that history"):
        fit_speeds([slot([])])


def test_jobs_are_those_that_came_with_their_real_times(lived):
    found = past_jobs(lived)
    assert [past.job for past in found] == trace()
    assert all(past.seconds is not None and past.seconds > 0 for past in found)


def test_a_policy_asked_again_decides_as_it_did(lived):
    assert [each.other for each in ask_again(lived, None, make_live_policy, NodeRule.SPREAD)] == [[]] * len(lived)
    others = [each for each in ask_again(lived, "fifo", make_live_policy, NodeRule.SPREAD) if each.other]
    assert others
    assert others[0].recorded != others[0].again


class Newest:
    """The job that came last has all."""

    def allocate(self, snapshot, room):
        room.give(len(snapshot.jobs) - 1, 8, 8)
        return room.allocation()


def test_a_policy_asked_again_keeps_what_was_kept_as_it_ended_soon():
    """A start took 30 s there, so a job with 40 s left was not suspended."""
    first = Job("first", 0.0, "m", 10.0, 100.0, TASK, TASK, 8, 8, 8, 8)
    second = replace(first, id="second", arrival=40.0)
    ran = JobOutcome("first", 8, 8, 1.0, None, since=30.0)
    began = Snapshot(0, 50.0, NODES, (JobState(first),))
    lived = [RecordedSlot(0.0, "x", began, Allocation({"first": Grant(8, 8)}), SlotOutcome(0, [ran], (), 0.0, 50.0))]
    states = JobState(first, 6.0, 1, 8, 8), JobState(second)
    now = Snapshot(1, 50.0, NODES, states, (SpeedReport("first", "m", 8, 8, 10.0),))
    decided = answer(Newest(), now, NodeRule.SPREAD, start_seconds=30.0).allocation
    assert [decided.of(name).workers for name in ("first", "second")] == [8, 0]
    lived.append(RecordedSlot(50.0, "x", now, decided, None))
    assert [each.other for each in ask_again(lived, None, lambda name: Newest(), NodeRule.SPREAD)] == [[], []]


@pytest.fixture
def folder(tmp_path, lived):
    history = History(tmp_path / HISTORY_FILE)
    for each in lived:
        history.decided(each.at, each.policy, each.snapshot, each.allocation)
        history.happened(each.outcome)
    history.close()
    return tmp_path


def dl2(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


def test_what_is_fitted_is_what_the_simulator_takes(folder):
    table, jobs = folder / "speeds.csv", folder / "jobs.jsonl"
    said = dl2("fit", "--folder", folder, "--out", table, "--trace", jobs)
    assert "vision" in said
    assert {len(points) for points in read_points(table).values()} == {MOST * MOST}
    assert read_trace(jobs) == trace()
    words = ("--policy", "drf", "--trace", jobs, "--speeds", table, "--cluster", "2x8slots", "--slot", "30", "--json")
    assert '"jct"' in dl2("simulate", *words) or "mean" in dl2("simulate", *words)


def test_a_history_is_replayed(folder):
    said = dl2("simulate", "--from-history", folder, "--json")
    assert '"agree": 1.0' in said
    other = dl2("simulate", "--from-history", folder, "--policy", "fifo")
    assert "fifo" in other
    assert "job-3" in other


def test_costs_are_the_historys_unless_they_are_given(folder, lived, tmp_path):
    started = [replace(each, outcome=with_starts(each, 12.0)) for each in lived]
    other = tmp_path / "started"
    other.mkdir()
    history = History(other / HISTORY_FILE)
    for each in started:
        history.decided(each.at, each.policy, each.snapshot, each.allocation)
        history.happened(each.outcome)
    history.close()
    assert "--start-cost 12.0 --change-cost 0.1 --join-cost 12.0" in dl2("fit", "--folder", other, "--out", other / "s")
    replayed = ("simulate", "--from-history", other)
    assert "start 12.0 s, change 0.1 s, join 12.0 s" in dl2(*replayed)
    assert "start 12.0 s, change 0.1 s, join 3.0 s" in dl2(*replayed, "--join-cost", "3")
    assert "start 9.4 s" in dl2("simulate", "--from-history", folder)


def with_starts(slot, seconds):
    """What came of a slot, where jobs that began in it did not train before."""
    had = {state.job.id: state.workers for state in slot.snapshot.jobs}
    since = slot.outcome.began + seconds
    jobs = [done if had[done.id] else replace(done, since=since) for done in slot.outcome.jobs]
    return replace(slot.outcome, jobs=jobs)
