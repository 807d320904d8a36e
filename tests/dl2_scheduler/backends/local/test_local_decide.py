"""What becomes of a local job: pure decisions."""

from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.server import status_view
from dl2_scheduler.backends.local import decide, views
from dl2_scheduler.backends.local.decide import LeaveJob, ScaleJob, StartJob, SuspendJob
from dl2_scheduler.backends.local.job_records import JobRecord
from dl2_scheduler.backends.local.launchers.elasticrun import report_of
from dl2_scheduler.backends.local.runtime import JobReport, LauncherEnding, LauncherProcess
from dl2_scheduler.cluster.desk import LiveJobPhase
from dl2_scheduler.cluster.document.job_document import read_document
from dl2_scheduler.cluster.snapshot import Grant
from tests.coordinator.played_job import World
from tests.dl2_scheduler.played_cluster import document

RECORD = JobRecord(
    1, read_document(document()), Path(), 0.0, process=LauncherProcess(7, "b"), wanted_workers=1, wanted_servers=1
)
REPORT = JobReport(True, "", 2, 1, 2, 1, True, 3.5, 100.0, 50.0)
NEW = replace(REPORT, trains=False, has_trained=False)


@pytest.mark.parametrize(
    ("phase", "report", "grant", "action"),
    [
        (LiveJobPhase.WAITING, None, (2, 1), StartJob(2, 1)),
        (LiveJobPhase.WAITING, None, (0, 0), LeaveJob()),
        (LiveJobPhase.RUNNING, REPORT, (2, 1), LeaveJob()),
        (LiveJobPhase.RUNNING, REPORT, (3, 1), ScaleJob(3, 1)),
        (LiveJobPhase.STARTING, NEW, (3, 2), ScaleJob(3, 2)),
        (LiveJobPhase.RUNNING, REPORT, (0, 0), SuspendJob(save=True)),
        (LiveJobPhase.STARTING, None, (0, 0), SuspendJob(save=False)),
        (LiveJobPhase.STARTING, NEW, (0, 0), SuspendJob(save=False)),
        (LiveJobPhase.STARTING, replace(REPORT, trains=False), (0, 0), SuspendJob(save=True)),
        (LiveJobPhase.SUSPENDING, None, (0, 0), LeaveJob()),
        (LiveJobPhase.STARTING, None, (1, 1), LeaveJob()),
    ],
)
def test_only_differences_are_done(phase, report, grant, action):
    assert decide.difference(replace(RECORD, phase=phase), report, Grant(*grant), "") == action


def test_a_job_is_saved_first_though_its_coordinator_was_just_started_again_and_has_heard_nobody():
    """Until its nodes have told, it does not know that they have trained, and all of that would be lost."""
    world, record = World(declare=False), replace(RECORD, phase=LiveJobPhase.RUNNING)
    before = report_of(status_view.status(world.state, world.now))
    assert decide.difference(record, before, Grant(0, 0), "") == SuspendJob(save=False)
    world = World()
    world.turn()
    assert world.state.version > 0
    world.kill_coordinator()
    told = status_view.status(world.state, world.now)
    assert (told.phase, told.version) == ("running", 0)
    assert decide.difference(record, report_of(told), Grant(0, 0), "") == SuspendJob(save=True)


@pytest.mark.parametrize(
    ("phase", "grant", "word"),
    [
        (LiveJobPhase.RUNNING, (0, 0), "does not answer"),  # what it trained would be lost
        (LiveJobPhase.RUNNING, (3, 1), "does not answer"),
        (LiveJobPhase.STARTING, (3, 1), "does not answer"),
        (LiveJobPhase.SUSPENDING, (1, 1), "still being suspended"),
    ],
)
def test_what_cannot_be_done_is_noted(phase, grant, word):
    action = decide.difference(replace(RECORD, phase=phase), None, Grant(*grant), "it does not answer")
    assert isinstance(action, LeaveJob)
    assert word in action.note


@pytest.mark.parametrize(
    ("status", "becomes"), [(0, LiveJobPhase.FINISHED), (1, LiveJobPhase.FAILED), (None, LiveJobPhase.WAITING)]
)
def test_an_end_before_the_job_was_saved_is_its_own(status, becomes):
    record = replace(RECORD, phase=LiveJobPhase.SUSPENDING)
    changed = replace(record, **decide.ended(record, LauncherEnding(status, "why", 9.0), 10.0))
    assert (changed.phase, changed.losses) == (becomes, 0 if status is not None else 1)


def test_what_is_saved_may_end_and_what_could_not_be_goes_on():
    saving = replace(RECORD, phase=LiveJobPhase.SUSPENDING)
    assert decide.saved(saving, "") == {"saved": True}
    assert decide.saved(saving, "disk full")["phase"] is LiveJobPhase.RUNNING
    for phase in (LiveJobPhase.STOPPING, LiveJobPhase.WAITING, LiveJobPhase.FINISHED):
        assert decide.saved(replace(RECORD, phase=phase), "") == {}


def test_a_report_moves_the_phase():
    starting = replace(RECORD, phase=LiveJobPhase.STARTING, epochs_done=3.0, samples_per_epoch=100.0)
    changes = decide.reported(starting, replace(REPORT, samples_per_epoch=0.0))
    assert (changes["phase"], changes["epochs_done"], changes["samples_per_epoch"]) == (
        LiveJobPhase.RUNNING,
        3.5,
        100.0,
    )
    back = decide.reported(replace(starting, phase=LiveJobPhase.RUNNING), replace(NEW, reason="s0 died"))
    assert (back["phase"], back["reason"], back["samples_per_second"]) == (LiveJobPhase.STARTING, "s0 died", 0.0)
    assert "phase" not in decide.reported(replace(starting, phase=LiveJobPhase.STOPPING), REPORT)


def told(record, back="", **report):
    return replace(record, **decide.reported(record, replace(REPORT, **report), back))


def test_epochs_that_are_done_again_are_told_until_they_are_done():
    record = told(replace(RECORD, phase=LiveJobPhase.RUNNING), epochs=9.5)
    assert (record.epochs_done, record.reason) == (9.5, "")
    record = told(record, "server s0 died", epochs=2.0)
    words = "epochs up to 9.5 are done again: back at its last checkpoint, as server s0 died"
    assert (record.epochs_done, record.most_epochs, record.reason) == (2.0, 9.5, words)
    record = told(record, epochs=9.0)
    assert (record.epochs_done, record.reason) == (9.0, words)
    record = told(record, epochs=9.5)
    assert (record.epochs_done, record.most_epochs, record.reason, record.back) == (9.5, 9.5, "", "")


@pytest.mark.parametrize("report", [{"trains": False}, {"samples_per_second": 0.0}])
def test_a_coordinator_that_has_heard_of_no_training_takes_no_epochs_back(report):
    record = replace(RECORD, phase=LiveJobPhase.RUNNING, epochs_done=9.5)
    assert told(record, epochs=0.0, **report).epochs_done == 9.5


def test_a_job_whose_launcher_was_lost_says_so_when_it_does_epochs_again():
    record = replace(RECORD, phase=LiveJobPhase.RUNNING, epochs_done=9.5)
    record = replace(record, **decide.ended(record, LauncherEnding(None, "it was killed", 9.0), 10.0))
    record = told(replace(record, phase=LiveJobPhase.STARTING), epochs=2.0)
    assert record.reason.endswith("checkpoint, as its launcher was lost: it was killed")
    assert told(told(record, epochs=9.5), epochs=8.0).reason.endswith("back at its last checkpoint")


def lost(record, now):
    running = replace(record, phase=LiveJobPhase.RUNNING)
    return replace(running, **decide.ended(running, LauncherEnding(None, "it was killed", now), now))


def test_launchers_that_are_lost_count_anew_after_ten_minutes_in_which_the_job_trained_further():
    record = replace(RECORD, losses=3, last_loss=1000.0, most_epochs=5.0, epochs_at_loss=5.0)
    assert lost(record, 1600.0).phase is LiveJobPhase.FAILED  # it did the same epochs again
    trained = replace(record, most_epochs=5.5)
    assert lost(trained, 1599.0).phase is LiveJobPhase.FAILED
    going_on = lost(trained, 1600.0)
    assert (going_on.phase, going_on.losses) == (LiveJobPhase.WAITING, 1)
    assert (going_on.last_loss, going_on.epochs_at_loss) == (1600.0, 5.5)
    assert lost(going_on, 1601.0).losses == 2


@pytest.mark.parametrize(
    ("phase", "losses", "status", "becomes"),
    [
        (LiveJobPhase.RUNNING, 0, 0, LiveJobPhase.FINISHED),
        (LiveJobPhase.RUNNING, 0, 1, LiveJobPhase.FAILED),
        (LiveJobPhase.STARTING, 0, 2, LiveJobPhase.FAILED),
        (LiveJobPhase.RUNNING, 0, None, LiveJobPhase.WAITING),
        (LiveJobPhase.RUNNING, 3, None, LiveJobPhase.FAILED),
        (LiveJobPhase.RUNNING, 0, 143, LiveJobPhase.WAITING),
        (LiveJobPhase.RUNNING, 3, 143, LiveJobPhase.FAILED),
        (LiveJobPhase.SUSPENDING, 0, 0, LiveJobPhase.WAITING),
        (LiveJobPhase.SUSPENDING, 0, None, LiveJobPhase.WAITING),
        (LiveJobPhase.STOPPING, 0, 0, LiveJobPhase.STOPPED),
        (LiveJobPhase.STOPPING, 0, 143, LiveJobPhase.STOPPED),
    ],
)
def test_the_end_of_a_launcher(phase, losses, status, becomes):
    record = replace(RECORD, phase=phase, losses=losses, workers=2, servers=1, saved=True)
    changed = replace(record, **decide.ended(record, LauncherEnding(status, "why", 9.0), 10.0))
    assert (changed.phase, changed.process, changed.workers) == (becomes, None, 0)
    assert changed.ended == (9.0 if becomes.ended else None)
    assert changed.epochs_done == (40.0 if becomes is LiveJobPhase.FINISHED else 0.0)


def test_a_job_that_has_trained_more_epochs_than_expected_has_lost_none_at_its_end():
    record = replace(RECORD, phase=LiveJobPhase.RUNNING, workers=2, servers=1, epochs_done=58.5, most_epochs=58.5)
    now = replace(record, **decide.ended(record, LauncherEnding(0, "finished", 9.0), 10.0))
    outcome = views.outcome_of(record, now, Grant(2, 1), "", 0.0)
    assert (now.epochs_done, outcome.lost, outcome.note) == (58.5, 0.0, "finished: finished")
