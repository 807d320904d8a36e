"""What a script hands over with `report`."""

import math

import numpy as np
import pytest

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.worker.wire.progress import MOST_METRICS, REPORT_STEPS, WorkerProgress


@pytest.fixture
def play(scripted):
    return scripted


def test_metrics_are_whatever_is_a_number(play):
    play.job.report(3, {"loss": math.nan, "norm": np.float32(0.5), "rate": np.array([2])[0]})
    metrics = play.node.report().metrics
    assert math.isnan(metrics.pop("loss"))
    assert metrics == {"norm": 0.5, "rate": 2}


@pytest.mark.parametrize("value", ["abc", None, np.ones(2), 10**400], ids=lambda value: str(value)[:9])
def test_what_is_no_number_is_refused_by_name(play, value):
    with pytest.raises(ConfigurationError, match=r"report: loss = .* is no number; give one, as in loss=0\.31"):
        play.job.report(3, {"loss": value, "norm": 1})
    assert not play.node.report().metrics


@pytest.mark.parametrize("name", ["a\0b", "a\udc80", "a" * 201], ids=["zero", "surrogate", "long"])
def test_a_name_that_cannot_be_sent_is_refused_where_the_script_sees_it(play, name):
    with pytest.raises(ConfigurationError, match=r"report: metric 'a.*': "):
        play.job.report(3, {name: 1})
    assert not play.node.report().metrics


def test_of_many_names_the_latest_count(play):
    play.job.report(0, {"first": 0, "loss": 0})
    for step in range(MOST_METRICS):
        play.job.report(step, {f"loss of step {step}": step, "loss": step})
    metrics = play.node.report().metrics
    assert len(metrics) == MOST_METRICS
    assert "first" not in metrics
    assert metrics["loss"] == MOST_METRICS - 1, "it came first, and was told last"


def test_steps_of_a_long_time_without_a_coordinator_are_told_in_parts():
    """In one report they would fill more than a message may have, and the coordinator's loop with its reading."""
    progress, told = WorkerProgress(), []
    for version in range(1, 2 * REPORT_STEPS + 2):
        progress.stepped(version, 1)
    while (report := progress.report(0)).steps:
        assert len(report.steps) <= REPORT_STEPS
        told += [step.version for step in report.steps]
        progress.reported(report)
    assert told == list(range(1, 2 * REPORT_STEPS + 2))


def test_steps_that_wait_for_a_coordinator_are_bounded(monkeypatch):
    monkeypatch.setattr("elastic_ps.worker.wire.progress.KEPT_STEPS", 3)
    progress = WorkerProgress()
    for version in range(3):
        progress.stepped(version, 1)
    report = progress.report(0)
    for version in range(3, 5):
        progress.stepped(version, 1)  # the oldest two give way while the report is under way
    progress.reported(report)
    assert [step.version for step in progress.report(0).steps] == [3, 4]


def test_a_machine_whose_clock_is_set_back_tells_all_its_steps_and_how_long_they_took(monkeypatch):
    """The coordinator takes steps for known that have not ended after the last one it knows."""
    progress = WorkerProgress()
    progress.stepped(1, 8)
    monkeypatch.setattr("elastic_ps.worker.wire.progress.time.time", lambda: 1000.0)
    progress.stepped(2, 8)
    first, second = progress.report(2).steps
    assert 0 <= second.seconds < 60
    assert first.end <= second.end


class PlayedClock:
    """The clock of a worker's progress, in the test's hand."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr("elastic_ps.worker.wire.progress.time.monotonic", lambda: self.now)

    def stepped(self, progress, version, now, samples=8):
        self.now = now
        progress.stepped(version, samples)


def test_a_rate_is_of_steps_of_the_present_configuration_alone(monkeypatch):
    """Else a scheduler that tries other counts would learn the speed of those before."""
    progress, clock = WorkerProgress(), PlayedClock(monkeypatch)
    for version, now in ((1, 0.0), (2, 1.0), (3, 2.0)):
        clock.stepped(progress, version, now)
    assert progress.report(3).rate == 8.0
    progress.switched()
    assert progress.report(3).rate == 0.0, "not known"
    clock.stepped(progress, 4, 12.0)
    report = progress.report(4)
    assert (report.rate, report.step_seconds) == (0.0, 1.0), "that step began before; how long steps take is known"
    clock.stepped(progress, 5, 12.5)
    clock.stepped(progress, 6, 13.0)
    assert progress.report(6).rate == 16.0
    progress.switched()
    clock.stepped(progress, 7, 14.0, samples=0)
    assert progress.report(7).rate == 0.0


def test_the_rate_of_a_worker_that_stands_falls(monkeypatch):
    """Else its job would be taken for one that trains as fast as ever, for as long as it stands."""
    progress, clock = WorkerProgress(), PlayedClock(monkeypatch)
    for version in range(11):
        clock.stepped(progress, version, float(version))
    rates = []
    for clock.now in (10.0, 10.9, 30.0, 1000.0):
        rates.append(progress.report(10).rate)
    assert rates[:2] == [8.0, 8.0], "a step takes as long"
    assert rates[2] == pytest.approx(88 / 30)
    assert rates[3] == pytest.approx(88 / 1000)
    clock.stepped(progress, 11, 30.0)
    assert progress.report(11).rate == pytest.approx(rates[2]), "as told before the step has ended"


def test_a_worker_without_samples_tells_a_rate_all_the_same():
    progress = WorkerProgress()
    for version in range(1, 4):
        progress.stepped(version, 0)
    assert 0 < progress.report(4).rate < 1e-3
