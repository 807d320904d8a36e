"""The binder and the cluster against a played API server: conflicts, restarts, leadership, what is told."""

import json
import queue

import pytest

from dl2_scheduler.backends.kube.apiserver.object_reading import job_of
from dl2_scheduler.backends.kube.apiserver.paced_writes import NotLeading, PacedWriter, WritePace
from dl2_scheduler.backends.kube.placement import binder
from dl2_scheduler.backends.kube.placement.binder import Binder
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from k8s.foundation.api_server import ApiUnavailable, Conflict
from tests.dl2_scheduler.kube_objects import NOW, gang, job, node, pod
from tests.dl2_scheduler.played_kube import JOBS, PlayedApi, PlayedView

PODS = "/api/v1/namespaces/default/pods"


class World:
    """A binder on a played server, without its thread."""

    def __init__(self, *nodes):
        self.api = PlayedApi()
        self.api.add("/api/v1/nodes", *nodes)
        self.time = NOW + 10
        self.leading = True
        self.view = PlayedView(self.api)
        self.binder = self.new_binder()

    def new_binder(self):
        return Binder(self.view, PacedWriter(self.api, lambda: self.leading), NodeRule.SPREAD, now=lambda: self.time)

    def add(self, made, pods):
        self.api.add(JOBS.format("default"), made)
        self.api.add(PODS, *pods)

    def bound(self):
        return {found.name for found in PlayedView(self.api).pods() if found.node}

    def asked(self, verb, words=""):
        return [path for asked, path, _ in self.api.calls if asked == verb and words in path]


@pytest.fixture
def world():
    made = World(node("a"), node("b"))
    yield made
    made.binder.stop()


def test_a_gang_is_bound_in_order(world):
    world.add(job("one", (2, 2)), gang("one", 2, 1))
    assert world.binder.step() is None
    asked = [path.split("/")[-2] for path in world.asked("create", "/binding")]
    assert asked == ["one-coordinator", "one-server-0", "one-worker-0", "one-worker-1"]
    world.binder.step()
    assert len(world.asked("create", "/binding")) == 4


def test_a_pod_that_could_not_be_bound_is_tried_again_though_nothing_is_told(world):
    world.api.add(PODS, pod("p"))
    world.api.fail = [Conflict("try again")]
    for seconds in (1.0, 9.0):
        assert world.binder.step() == seconds
        world.time += seconds
    world.binder.step()
    assert world.bound() == {"p"}


def test_a_pod_that_could_not_be_bound_does_not_wait_for_a_clock_that_was_set_back(world):
    world.api.add(PODS, pod("p"))
    world.api.fail = [Conflict("try again")]
    world.binder.step()
    world.time -= 3600
    world.binder.step()
    assert world.bound() == {"p"}


@pytest.fixture
def poison(monkeypatch):
    """A job named `bad` breaks every decision about it."""
    sound = binder.decide

    def decide(nodes, pods, *rest):
        if any(found.job == "bad" and not found.node for found in pods):
            raise AttributeError("'str' object has no attribute 'get'")
        return sound(nodes, pods, *rest)

    monkeypatch.setattr(binder, "decide", decide)


def test_a_job_that_the_decision_breaks_on_waits_and_others_are_bound(world, poison):
    world.add(job("bad"), gang("bad"))
    world.add(job("good"), gang("good"))
    world.binder.step()
    assert world.bound() == {"good-coordinator", "good-server-0", "good-worker-0"}
    waits = {found.name: found.waits for found in world.view.pods() if not found.node}
    assert len(waits) == 3
    assert all("the scheduler fails on this pod: AttributeError" in why for why in waits.values())


def test_whatever_breaks_the_binder_goes_on(world, monkeypatch):
    steps = queue.Queue()

    def step():
        steps.put(None)
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(binder, "_AFTER_FAILURE", 0.01)
    monkeypatch.setattr(world.binder, "step", step)
    world.binder.start()
    world.binder._woken.set()
    for _ in range(3):
        steps.get(timeout=5)
    assert world.binder._thread.is_alive()


def test_a_pod_is_not_bound_again_while_the_watch_lags(world):
    world.add(job("one"), gang("one"))
    stale = world.view.pods()
    world.binder.step()
    world.view.pods = lambda: stale
    world.binder.step()
    assert len(world.asked("create", "/binding")) == 3


def test_a_pod_that_somebody_else_bound_is_left_alone_and_its_gang_goes_on(world):
    pods = gang("one")
    world.add(job("one"), pods)
    stale = world.view.pods()
    world.api.add(PODS, {**pods[0], "spec": {**pods[0]["spec"], "nodeName": "b"}})
    fresh, world.view.pods = world.view.pods, lambda: stale
    assert world.binder.step() == 1.0  # a conflict: soon again
    assert world.bound() == {"one-coordinator"}
    world.binder.step()
    assert len(world.asked("create", "coordinator/binding")) == 1  # not repeated
    world.view.pods = fresh
    world.binder.step()
    assert world.bound() == {"one-coordinator", "one-server-0", "one-worker-0"}


def test_a_gang_cut_short_is_completed_by_the_next_scheduler_first(world):
    world.add(job("half", (2, 2)), gang("half", 2, 2))
    world.add(job("older", (2, 2), created=-9), gang("older", 2, 2)[1:])  # its coordinator is to come
    world.api.fail = [None, None, ApiUnavailable("cut")]
    assert world.binder.step() == 1.0
    assert world.bound() == {"half-coordinator", "half-server-0"}
    world.api.add(PODS, gang("older", 2, 2)[0])
    world.binder.stop()
    world.binder = world.new_binder()
    world.binder.step()
    assert world.bound() == {f"half-{name}" for name in ("coordinator", "server-0", "server-1", "worker-0", "worker-1")}


def test_who_does_not_lead_writes_nothing(world):
    world.add(job("one"), gang("one"))
    world.leading = False
    with pytest.raises(NotLeading):
        world.binder.step()
    assert world.api.calls == []


def test_reasons_are_told_after_a_moment_once_and_again_when_they_change(world):
    world.time = NOW + 1
    world.api.add(PODS, pod("p", "9"))
    assert world.binder.step() == pytest.approx(2.0)
    assert world.asked("patch") == []
    world.time = NOW + 4
    world.binder.step()
    assert world.asked("patch") == [f"{PODS}/p/status"]
    event = next(body for verb, path, body in world.api.calls if verb == "create" and "events" in path)
    assert (event["reason"], event["type"], event["involvedObject"]["name"]) == ("FailedScheduling", "Warning", "p")
    assert "0/2 nodes are available: 2 short of cpu: it takes 9, at most 4 free" in event["message"]
    world.api.add(PODS, pod("q", "1", node="a"))  # other numbers are no other reason
    world.binder.step()
    world.api.put("/api/v1/nodes/a", node("a", unschedulable=True))
    assert world.binder.step() == pytest.approx(60.0)  # another one is, but not so soon
    assert len(world.asked("patch")) == 1
    world.time += 60
    world.binder.step()
    assert len(world.asked("patch")) == 2
    restarted = world.new_binder()
    restarted.step()
    restarted.stop()
    assert len(world.asked("patch")) == 2  # the pod says it already


def test_a_gang_gives_its_room_back_and_its_job_says_so(world):
    nodes = {"half-coordinator": "a", "half-server-0": "a"}
    world.add(job("half", (9, 9), gangTimeout="5s"), gang("half", 9, 1, nodes=nodes, bound=1))
    world.binder.step()
    assert [path.rpartition("/")[2] for path in world.asked("delete")] == ["half-coordinator", "half-server-0"]
    event = next(body for verb, path, body in world.api.calls if verb == "create" and "events" in path)
    assert (event["reason"], event["involvedObject"]["kind"]) == ("GangTimeout", "ElasticJob")


def test_writes_keep_their_pace():
    time, slept = [0.0], []
    pace = WritePace(rate=10, burst=3, clock=lambda: time[0], sleep=slept.append)
    for _ in range(5):
        pace.take()
    assert slept == pytest.approx([0.1, 0.2])
    time[0] = 10.0
    for _ in range(3):
        pace.take()
    assert len(slept) == 2


# ---- counts ---------------------------------------------------------------------------------------------------------


def slot(cluster, **grants):
    cluster.snapshot()
    cluster.apply(Allocation({name: Grant(*counts, "why") for name, counts in grants.items()}))
    return {found.id: found for found in cluster.finish_slot().jobs}


def found(api, name):
    return job_of(api.objects[f"{JOBS.format('default')}/{name}"])


def test_what_somebody_wrote_meanwhile_is_read_before_it_is_written_again(serve_kube, api):
    cluster = serve_kube(["a"])
    path = f"{JOBS.format('default')}/a"
    cluster.snapshot()

    def meanwhile(_path):
        api.before_write = lambda path: None
        api.put(path, {**api.objects[path], "status": {"phase": "Waiting"}})

    api.before_write = meanwhile
    cluster.apply(Allocation({"a": Grant(2, 1, "why")}))
    assert (found(api, "a").allotment.workers, len([c for c in api.calls if c[0] == "patch"])) == (2, 2)


@pytest.mark.parametrize(("written", "number"), [(7, 8), (2**63 - 1, 0), (2**53, 0), (-3, 0)])
def test_slots_go_on_from_what_jobs_were_given_unless_somebody_wrote_any_number(serve_kube, api, written, number):
    cluster = serve_kube(["a", "b"])
    path = f"{JOBS.format('default')}/a"
    given = {"workers": 1, "servers": 1, "reason": "", "slot": written}
    api.put(path, {**api.objects[path], "spec": {**api.objects[path]["spec"], "allocation": given}})
    assert cluster.snapshot().slot == number
    cluster.apply(Allocation({"b": Grant(2, 1, "why")}))
    assert found(api, "b").allotment.slot == number


@pytest.mark.parametrize("spec", [{"scaling": "Manual"}, {"suspend": True}])
def test_a_job_that_is_held_meanwhile_is_not_written(serve_kube, api, spec):
    cluster = serve_kube(["a"])
    path = f"{JOBS.format('default')}/a"
    cluster.snapshot()
    api.put(path, {**api.objects[path], "spec": {**api.objects[path]["spec"], **spec}})
    cluster.apply(Allocation({"a": Grant(2, 1, "why")}))
    assert found(api, "a").allotment is None


def test_a_job_that_cannot_be_written_whatever_the_reason_is_its_own_note(serve_kube, api, monkeypatch):
    cluster = serve_kube(["a", "b"])
    cluster.snapshot()
    sound = cluster._change

    def change(found, grant):
        if found.name == "a":
            raise TypeError("no number")
        return sound(found, grant)

    monkeypatch.setattr(cluster, "_change", change)
    cluster.apply(Allocation({"a": Grant(1, 1, "why"), "b": Grant(1, 1, "why")}))
    notes = {each.id: each.note for each in cluster.finish_slot().jobs}
    assert "TypeError('no number')" in notes["a"]
    assert found(api, "b").allotment.workers == 1


def test_a_job_whose_pods_the_api_server_would_not_make_takes_no_room(serve_kube, api):
    cluster = serve_kube(["a", "b"])
    path = f"{JOBS.format('default')}/a"
    refused = {"type": "Accepted", "status": "False", "reason": "InvalidTemplate", "message": "no such field"}
    api.put(path, {**api.objects[path], "status": {"phase": "Waiting", "conditions": [refused]}})
    assert [state.job.id for state in cluster.snapshot().jobs] == ["b"]
    api.put(path, {**api.objects[path], "status": {"conditions": [{**refused, "status": "True"}]}})
    assert [state.job.id for state in cluster.snapshot().jobs] == ["a", "b"]


def test_a_write_that_fails_is_a_note_of_the_slot(serve_kube, api):
    cluster = serve_kube(["a"])
    cluster.snapshot()
    api.fail = [ApiUnavailable("too busy")]
    cluster.apply(Allocation({"a": Grant(2, 1, "why")}))
    (job,) = cluster.finish_slot().jobs
    assert job.note == "its counts could not be written: too busy"
    assert api.fail == []


def test_jobs_that_shrink_are_written_first(serve_kube, api):
    cluster = serve_kube(["a", "b", "c"])
    slot(cluster, a=(4, 4), b=(1, 1), c=(1, 1))
    api.calls.clear()
    slot(cluster, c=(4, 4), a=(1, 1), b=(1, 1))
    assert [path.rpartition("/")[2] for verb, path, _ in api.calls if verb == "patch"] == ["a", "c"]


def test_slots_and_what_ran_survive_a_restart_and_a_lost_folder(serve_kube, api, tmp_path):
    cluster = serve_kube(["a"])
    slot(cluster, a=(1, 1))
    slot(cluster, a=(2, 1))
    again = serve_kube().snapshot()
    assert (again.slot, again.jobs[0].slots_run) == (2, 2)
    (tmp_path / "kube.sqlite").unlink()
    for left in tmp_path.glob("kube.sqlite-*"):
        left.unlink()
    cluster = serve_kube()
    slot(cluster, a=(3, 1))
    slot(cluster, a=(1, 1))
    assert found(api, "a").allotment.slot == 3
    told = [entry["slot"] for entry in json.loads(found(api, "a").decisions)]
    assert told == [0, 1, 2, 3], "numbers go on after those that jobs tell of"


def test_a_new_job_need_not_wait_for_the_slots_end_where_nothing_runs(serve_kube, api, clock):
    cluster = serve_kube(["a"], slot=100.0)
    cluster.snapshot()
    cluster.apply(Allocation({"a": Grant(0, 0, "it fits nowhere")}))

    def arrive():
        api.add(JOBS.format("default"), job("b", created=clock.now() - NOW, allocation=None))
        clock.wake()

    clock.at(clock.now() + 5, arrive)
    began = clock.now()
    cluster.finish_slot()
    assert clock.now() - began == 5
    cluster.snapshot()
    cluster.apply(Allocation({"a": Grant(0, 0, "no"), "b": Grant(0, 0, "no")}))
    clock.at(clock.now() + 5, clock.wake)
    began = clock.now()
    cluster.finish_slot()
    assert clock.now() - began == 100  # both are known and wait: nothing is decided anew before its time


def test_decisions_of_several_policies_are_kept_with_their_names(serve_kube, api):
    cluster = serve_kube(["a"])
    for name, workers in (("drf", 1), ("dl2:run", 2)):
        cluster.policy = lambda name=name: name
        slot(cluster, a=(workers, 1))
    entries = json.loads(found(api, "a").decisions)
    assert [(entry["policy"], entry["workers"]) for entry in entries] == [("drf", 1), ("dl2:run", 2)]


def test_conflicts_for_ever_are_given_up(serve_kube, api):
    cluster = serve_kube(["a"])
    cluster.snapshot()
    api.fail = [Conflict("x"), None] * 4
    cluster.apply(Allocation({"a": Grant(1, 1, "why")}))
    (job,) = cluster.finish_slot().jobs
    assert "others write it all the time" in job.note
