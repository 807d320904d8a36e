"""A mirror of the API server's objects: what a watch tells, where it goes on, and what happens after failures."""

import threading

import pytest

from dl2_scheduler.backends.kube.apiserver import object_watch
from dl2_scheduler.backends.kube.apiserver.informers import gist
from dl2_scheduler.backends.kube.apiserver.object_reading import job_of, node_of
from dl2_scheduler.backends.kube.apiserver.object_watch import Mirror, Watcher
from k8s.foundation.api_server import ApiUnavailable, Gone
from tests.dl2_scheduler.kube_objects import job, node
from tests.dl2_scheduler.played_kube import PlayedApi

NODES = "/api/v1/nodes"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(object_watch, "_SHORTEST_PAUSE", 0.001)
    monkeypatch.setattr(object_watch, "_LONGEST_PAUSE", 0.01)


@pytest.fixture
def api():
    made = PlayedApi()
    made.add(NODES, node("a"), node("b"))
    return made


@pytest.fixture
def watcher(api):
    stopped, changes = threading.Event(), []
    made = Watcher(api, NODES, node_of, lambda: changes.append(None), stopped=stopped)
    made.changes = changes
    made.start()
    assert made.wait(10)
    yield made
    stopped.set()
    api.end_watches()


def names(watcher):
    return sorted(found.name for found in watcher.all())


def asked(api, verb):
    return sum(call[0] == verb for call in api.calls)


def test_what_is_there_and_what_comes_changes_and_goes(api, watcher):
    assert names(watcher) == ["a", "b"]
    api.add(NODES, node("c"))
    api.until(lambda: names(watcher) == ["a", "b", "c"])
    api.add(NODES, node("c", unschedulable=True))
    api.until(lambda: any(found.cordoned for found in watcher.all()))
    api.drop(f"{NODES}/a")
    api.until(lambda: names(watcher) == ["b", "c"])
    api.until(lambda: len(watcher.changes) == 4)  # the list, and three events
    assert asked(api, "get") == 1


def test_a_watch_that_ends_is_gone_on_with_where_it_was(api, watcher):
    api.until(lambda: asked(api, "watch") == 1)
    api.add(NODES, node("c"))
    api.until(lambda: names(watcher) == ["a", "b", "c"])
    api.end_watches()
    api.add(NODES, node("d"))
    api.until(lambda: names(watcher) == ["a", "b", "c", "d"])
    assert asked(api, "get") == 1
    assert asked(api, "watch") >= 2


def test_a_bookmark_moves_the_place_and_tells_nobody(api, watcher):
    api.until(lambda: api.watches)
    api.bookmark()
    api.forgotten = api.version  # what was before it cannot be watched from any more
    api.until(lambda: watcher._mirror.version == str(api.version))
    api.end_watches()
    api.add(NODES, node("c"))
    api.until(lambda: names(watcher) == ["a", "b", "c"])
    assert asked(api, "get") == 1
    assert len(watcher.changes) == 2


@pytest.mark.parametrize("how", ["refused", "told"])
def test_where_its_place_is_forgotten_all_is_listed_again(api, watcher, how):
    api.until(lambda: api.watches)
    with api.lock:
        api.end_watches(Gone("compacted") if how == "told" else None)
        api.drop(f"{NODES}/a")
        api.add(NODES, node("c"))
        api.forgotten = api.version
    api.until(lambda: names(watcher) == ["b", "c"])
    assert asked(api, "get") == 2


def test_failures_are_waited_after_and_nothing_is_lost(api, watcher):
    api.until(lambda: api.watches)
    api.fail = [ApiUnavailable("restarting")] * 4
    api.end_watches(ApiUnavailable("connection reset"))
    api.add(NODES, node("c"))
    api.until(lambda: names(watcher) == ["a", "b", "c"])
    assert api.fail == []
    assert asked(api, "get") == 1


def test_pauses_grow_to_a_limit(monkeypatch, api):
    pauses = []

    class Stopped(threading.Event):
        def wait(self, timeout=None):
            pauses.append(timeout)
            if len(pauses) == 8:
                self.set()
            return self.is_set()

    monkeypatch.setattr(object_watch, "_SHORTEST_PAUSE", 0.5)
    monkeypatch.setattr(object_watch, "_LONGEST_PAUSE", 30.0)
    monkeypatch.setattr(object_watch.random, "uniform", lambda low, high: high)
    api.fail = [ApiUnavailable("down")] * 8
    Watcher(api, NODES, node_of, lambda: None, stopped=Stopped()).run()
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_one_object_that_cannot_be_read_does_not_stop_the_others():
    mirror = Mirror(node_of)
    bad = node("bad", cpu="many")
    mirror.replace([node("a"), bad], "1")
    mirror.take({"type": "MODIFIED", "object": bad})
    assert [found.name for found in mirror.all()] == ["a"]


def test_what_is_not_kept_of_an_object_does_not_count_as_a_change():
    mirror = Mirror(node_of)
    mirror.replace([node("a"), node("b")], "1")
    beat = node("a")
    beat["status"]["conditions"].append({"type": "MemoryPressure", "status": "False", "lastHeartbeatTime": "now"})
    assert not mirror.take({"type": "MODIFIED", "object": beat})
    assert mirror.take({"type": "MODIFIED", "object": node("a", unschedulable=True)})
    assert [found.name for found in mirror.all()] == ["a", "b"]
    assert mirror.take({"type": "DELETED", "object": node("a")})
    assert not mirror.take({"type": "DELETED", "object": node("a")})


@pytest.mark.parametrize(
    ("spec", "status", "counts"),
    [
        ({}, {"epoch": 3.5, "samplesPerSecond": 90}, False),
        ({"allocation": {"workers": 1, "servers": 1, "reason": "another", "slot": 9}}, {}, False),
        ({"allocation": {"workers": 2, "servers": 1, "reason": "", "slot": 0}}, {}, False),
        ({"allocation": {"workers": 0, "servers": 0, "reason": "", "slot": 0}}, {}, True),
        ({"suspend": True}, {}, True),
        ({}, {"phase": "Completed"}, True),
        ({}, {"workers": 2}, True),
    ],
)
def test_a_jobs_progress_does_not_count(spec, status, counts):
    mirror = Mirror(job_of, gist)
    before = {**job("one"), "status": {"phase": "Running", "epoch": 1}}
    mirror.replace([before], "1")
    after = {**before, "spec": {**before["spec"], **spec}, "status": {**before["status"], **status}}
    assert mirror.take({"type": "MODIFIED", "object": after}) is counts
    assert mirror.all() == [job_of(after)]


def test_an_event_that_is_an_error_is_raised_by_its_kind():
    mirror = Mirror(node_of)
    with pytest.raises(Gone, match="too old"):
        mirror.take({"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}})
    with pytest.raises(ApiUnavailable):
        mirror.take({"type": "ERROR", "object": {"code": 500}})


def test_an_object_that_cannot_be_read_whatever_it_has_does_not_stop_the_others():
    """A text where fields belong, as a template may have it: the thread of the watch died of it."""
    mirror = Mirror(lambda found: found["spec"].get("volumes"))
    meta = {"name": "x", "resourceVersion": "1"}
    listed = [
        {"metadata": {**meta, "uid": "bad"}, "spec": "text"},
        {"metadata": {**meta, "uid": "good"}, "spec": {"volumes": 1}},
    ]
    mirror.replace(listed, "1")
    assert mirror.all() == [1]
