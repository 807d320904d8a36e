"""When jobs start and end, in ElasticJobs' status: the scheduler writes it, the operator keeps it, people read it."""

import logging
import threading
import time
from contextlib import closing
from dataclasses import replace

import pytest

from dl2_scheduler.backends.kube.apiserver.object_reading import job_of
from dl2_scheduler.backends.kube.apiserver.paced_writes import NotLeading, PacedWriter
from dl2_scheduler.backends.kube.client import KubeClient
from dl2_scheduler.backends.kube.forecast_status import ForecastWriter, change_of, forecast_of
from dl2_scheduler.cluster.forecast import ExpectedTime, Forecast
from k8s.elastic_operator.job.status import ElasticJobStatus
from k8s.foundation.api_server import ApiError
from tests.dl2_scheduler.kube_objects import NOW, job
from tests.dl2_scheduler.played_kube import JOBS, PlayedView

PATH = JOBS.format("default")


def event(at):
    return ExpectedTime(NOW + at, NOW + at - 100.0, NOW + at + 100.0)


def forecast(end=5000.0, start=None, made=0.0):
    return Forecast(NOW + made, None if start is None else event(start), event(end))


def after(before, change):
    """What a merge patch makes of it."""
    given = change["forecast"]
    return {name: text for name, text in {**before, **given}.items() if text is not None}


def test_what_is_written_is_read_again():
    status = after({}, change_of({}, forecast(start=600.0)))
    assert set(status) == {"made", "start", "startEarliest", "startLatest", "end", "endEarliest", "endLatest"}
    assert forecast_of(status, NOW) == forecast(start=600.0)
    status = after(status, change_of(status, forecast()))
    assert forecast_of(status, NOW) == forecast(), "it has started"
    assert change_of(status, None) == {"forecast": None}


def test_it_is_written_again_when_it_has_moved_or_is_old():
    status = after({}, change_of({}, forecast()))
    assert change_of({}, None) is None
    assert change_of(status, forecast(end=5039.0, made=1200.0)) is None
    assert change_of(status, forecast(end=5041.0, made=1200.0)) is not None
    assert change_of(status, forecast(made=3600.0)) is not None
    assert forecast_of(status, NOW + 7200.0) is not None
    assert forecast_of(status, NOW + 7201.0) is None, "whoever wrote it writes no more"


@pytest.fixture
def told(api):
    with closing(ForecastWriter(PlayedView(api), PacedWriter(api, lambda: True))) as writer:
        yield writer


def written(api):
    return [(path, body["status"]["forecast"]) for verb, path, body in api.calls if verb == "patch"]


def test_forecasts_are_written_into_the_jobs(api, told):
    api.add(PATH, job("a"), job("b"), job("c"))
    told.write({"a": forecast(), "b": forecast(start=60.0)})
    assert [path for path, _ in written(api)] == [f"{PATH}/a/status", f"{PATH}/b/status"]
    assert api.objects[f"{PATH}/a"]["status"]["forecast"]["end"].endswith("Z")
    told.write({"a": forecast(made=20.0)})
    assert written(api)[2:] == [(f"{PATH}/b/status", None)], "nobody knows of b any more, and of a nothing new"
    over = api.objects[f"{PATH}/a"]
    api.put(f"{PATH}/a", {**over, "status": {**over["status"], "phase": "Completed"}})
    told.write({"a": forecast(made=40.0)})
    assert written(api)[3:] == [(f"{PATH}/a/status", None)]


def test_a_job_that_cannot_be_written_keeps_no_other_from_it(api, told, caplog):
    api.add(PATH, job("a"), job("b"))
    api.fail = [ApiError("it is busy")]
    with caplog.at_level(logging.WARNING):
        told.write({"a": forecast(), "b": forecast()})
    assert "a: its forecast could not be written: it is busy" in caplog.text
    assert job_of(api.objects[f"{PATH}/b"]).status.forecast


def test_who_does_not_lead_writes_nothing(api):
    api.add(PATH, job("a"))
    with closing(ForecastWriter(PlayedView(api), PacedWriter(api, lambda: False))) as writer:
        writer.write({"a": forecast()})
    assert written(api) == []
    assert issubclass(NotLeading, ApiError)


def test_the_loop_does_not_wait(api, told):
    api.add(PATH, job("a"))
    goes_on = threading.Event()
    api.before_write = lambda path: goes_on.wait(30.0)
    told.tell({"a": forecast()})
    told.tell({"a": forecast(end=9000.0)})
    goes_on.set()
    told.close()
    assert len(written(api)) == 1


def test_closing_waits_for_one_write_not_for_all(api, told):
    api.add(PATH, job("a"), job("b"))
    begun, goes_on = threading.Event(), threading.Event()
    api.before_write = lambda path: (begun.set(), goes_on.wait(30.0))
    told.tell({"a": forecast(), "b": forecast()})
    assert begun.wait(30.0)
    closes = threading.Thread(target=told.close)
    closes.start()
    assert told._closed.wait(30.0)
    goes_on.set()
    closes.join(30.0)
    assert len(written(api)) == 1


def test_what_goes_wrong_beside_the_loop_is_logged(told, monkeypatch, caplog):
    monkeypatch.setattr(told, "write", lambda forecasts: 1 / 0)
    told.tell({})
    told._running.result(30.0)
    assert "forecasts could not be written" in caplog.text


def test_the_operator_leaves_it_as_it_is():
    status = after({}, change_of({}, forecast()))
    found = ElasticJobStatus.of({"status": {"phase": "Running", "forecast": status}})
    assert replace(found, reason="it trains").to_dict()["forecast"] == status
    assert "forecast" not in ElasticJobStatus.of({"status": {"phase": "Running"}}).to_dict()


def test_people_are_told(api, told):
    waiting = job("a", allocation=None, created=time.time() - NOW - 60.0, epochs=9)
    api.add(PATH, waiting)
    now = time.time() - NOW
    told.write({"a": Forecast(NOW + now, event(now + 600.0), event(now + 5000.0))})
    with KubeClient(api, "default") as client:
        (found,) = client.jobs()
        assert found.forecast.start.at == pytest.approx(NOW + now + 600.0, abs=1.0)
        assert found.forecast.end.high == pytest.approx(NOW + now + 5100.0, abs=1.0)


def test_a_forecast_of_an_earlier_job_of_its_name_is_not_told(api, told):
    made = job("a")
    made["metadata"]["creationTimestamp"] = "2026-01-01T00:01:40Z"
    api.add(PATH, made)
    created = job_of(made).created
    for at in (created - 10.0, created + 10.0):
        told.write({"a": replace(forecast(), made=at)})
    assert [each["made"] for _, each in written(api)] == ["2026-01-01T00:01:50Z"]
