"""Slots of Kubernetes say where tasks were and how fast their jobs trained, as those of this machine do."""

from contextlib import closing

import pytest

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.hardware.measured import MeasuredJob
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from dl2_scheduler.learning.live.refit_program import LiveRefitter
from dl2_scheduler.live.history import History
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.live.slot_loop import SlotLoop
from dl2_scheduler.policies.placement.speed_model import save_speed_model
from dl2_scheduler.policies.registry import make_live_policy
from tests.dl2_scheduler.kube_objects import pod
from tests.dl2_scheduler.played_kube import JOBS
from tests.dl2_scheduler.policies.placement.fitted import drawn_model

PODS = "/api/v1/namespaces/default/pods"
GIVEN = {"a": (2, 1), "b": (1, 1)}


def put(api, job, role, number=0, node="node-1"):
    api.add(PODS, pod(f"{job}-{role}-{number}", job=job, role=role, node=node))


@pytest.fixture
def cluster(serve_kube, api):
    """A job with tasks on both nodes, and one on the second; both have trained for a slot."""
    found = serve_kube(("a", "b"), epochs=400)
    for each in (("a", "worker"), ("a", "worker", 1, "node-2"), ("a", "server", 0, "node-2")):
        put(api, *each)
    for role in ("coordinator", "worker", "server"):
        put(api, "b", role, 0, "node-2")
    assert placed(found) is None  # they have just begun
    return found


def placed(cluster):
    cluster.snapshot()
    cluster.apply(Allocation({name: Grant(*counts) for name, counts in GIVEN.items()}))
    return cluster.finish_slot().placed


def test_a_slot_in_which_nothing_moved_says_where_tasks_were(cluster):
    assert placed(cluster).jobs == (
        MeasuredJob("digits", (0, 1), (1,), (1.0,)),  # it trains as many samples as the fewer of both
        MeasuredJob("digits", (1,), (1,), (1.0,)),
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda api: put(api, "a", "worker", 2),  # one too many
        lambda api: (api.drop(f"{PODS}/b-worker-0"), put(api, "b", "worker", 0, "node-2")),  # made anew where it was
        lambda api: (api.drop(f"{PODS}/b-worker-0"), put(api, "b", "worker", 0, "node-1")),
        lambda api: (api.drop(f"{PODS}/b-worker-0"), put(api, "b", "worker", 0, "")),
        lambda api: api.drop("/api/v1/nodes/node-2"),
    ],
)
def test_what_moves_comes_or_goes_spoils_the_slot(cluster, api, change):
    change(api)
    assert placed(cluster) is None


def test_a_job_that_is_not_heard_of_spoils_the_slot(cluster, api, operator):
    """Its coordinator, or the operator, stands still: what was told last may be of other neighbours."""
    operator.tend = lambda: None
    api.after_patch = lambda: None
    cluster._view.tended = operator.tend
    assert placed(cluster) is None


def test_held_jobs_count_and_those_without_pods_do_not(cluster, api):
    path = f"{JOBS.format('default')}/b"
    api.put(path, api.objects[path] | {"spec": api.objects[path]["spec"] | {"scaling": "Manual"}})
    assert len(placed(cluster).jobs) == 2  # held jobs train there, too
    for role in ("coordinator", "worker", "server"):
        api.drop(f"{PODS}/b-{role}-0")
    assert placed(cluster) is None
    assert len(placed(cluster).jobs) == 1


def test_the_refitter_reads_these_slots(cluster, api, tmp_path):
    save_speed_model(tmp_path / "model", drawn_model())
    with closing(History(tmp_path / "decisions.sqlite")) as history:
        policies = Policies(make_live_policy, "drf", tmp_path)
        loop = SlotLoop(cluster, policies, NodeRule.SPREAD, history, now=lambda: 5.0)
        cluster.apply = lambda _: cluster._memory.next_slot(cluster._slot)  # what they have stays as it is
        for _ in range(3):
            loop.slot()
        refitter = LiveRefitter(tmp_path / "model", tmp_path, history)
        assert refitter.look() is None  # too few, and of a type that the model does not know
        (row,) = refitter._new.rows(("digits",))
        assert [len(job.speeds) for job in row.jobs] == [3, 3]
