"""Jobs of mode all-reduce on Kubernetes: the operator makes workers alone, and asks for nothing else."""

import asyncio
from dataclasses import replace

import pytest

from elastic_ps.core.configuration import Role
from k8s.elastic_operator.coordinator_calls import CoordinatorRequests
from k8s.elastic_operator.job import manifests
from k8s.elastic_operator.job.actions import (
    DeletePod,
    Ensure,
    RequestScale,
    SaveJob,
    StartCoordinator,
    StartNode,
    StopJob,
    WriteEvent,
)
from k8s.elastic_operator.job.manifests import Defaults
from k8s.elastic_operator.job.model import CAUSE, Counts
from k8s.elastic_operator.job.reconciliation import CheckpointSaving, ObservedJob
from k8s.elastic_operator.job.status import FAILED, RUNNING, SUSPENDED, ElasticJobStatus
from tests.k8s.operator_cases import PODS, SPEC, TAKEN, decide, job, kinds, running, worker

DEFAULTS = Defaults(image="runtime:1")
GPU = {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}


def serverless(without=("servers", "checkpoint"), **spec):
    return job(without=without, mode="all-reduce", **spec)


def saved(**spec):
    """One with a place for its checkpoints."""
    return serverless(without=("servers",), **spec)


def container_of(pod):
    (container,) = pod["spec"]["containers"]
    return container


def test_it_begins_with_its_coordinator_and_workers():
    done = decide(ObservedJob(verdict=TAKEN), serverless())
    assert kinds(done, *PODS) == [
        Ensure(),
        StartCoordinator(1, Counts(2, 0), begins=True),
        StartNode(Role.WORKER, 1),
        StartNode(Role.WORKER, 2),
    ]
    said = {event.reason: event.message for event in kinds(done, WriteEvent)}
    assert said["Starting"] == "2 workers"
    assert said["NoCheckpoint"] == (
        "spec.checkpoint.url is missing: if all workers are lost at once the job fails; what it has trained is lost "
        "then, and it cannot be suspended"
    )
    assert "NoCheckpoint" not in {one.reason for one in kinds(decide(ObservedJob(verdict=TAKEN), saved()), WriteEvent)}


def test_the_scheduler_grants_it_workers():
    granted = serverless(scaling="Scheduler", allocation={"workers": 3, "servers": 0, "reason": ""})
    assert granted.counts == Counts(3, 0)
    assert serverless(scaling="Scheduler", allocation={"workers": 0, "servers": 0}).counts == Counts()


def test_a_job_with_servers_is_never_started_without_them():
    """Whoever writes spec.allocation may leave one role out: the coordinator would take the job for one without."""
    assert job(scaling="Scheduler", allocation={"workers": 3}).counts == Counts()


def test_it_is_scaled():
    seen = running(worker(1), worker(2))
    grown = decide(seen, serverless(workers={**SPEC["workers"], "replicas": 3}))
    assert [action.counts for action in kinds(grown, RequestScale)] == [Counts(3, 0)]
    assert grown.status.conditions["Scaled"].message == "3 workers"
    starting = running(worker(1), worker(2), report={"wanted": Counts(3, 0), "starting": Counts(1, 0)})
    assert kinds(decide(starting, serverless(workers={**SPEC["workers"], "replicas": 3})), StartNode) == [
        StartNode(Role.WORKER, 3)
    ]


def test_that_trains_without_a_place_for_checkpoints_it_is_not_suspended():
    found = decide(running(worker(1)), serverless(suspend=True))
    assert not kinds(found, SaveJob, DeletePod)
    assert found.status.conditions["Suspended"].reason == "NoCheckpoint"
    message = found.status.conditions["Suspended"].message
    assert message == "it goes on: without spec.checkpoint.url it could not come back"


@pytest.mark.parametrize("nothing", [{"suspend": True}, {"scaling": "Scheduler", "allocation": {"workers": 0}}])
def test_it_is_saved_stopped_and_comes_back_from_its_checkpoint(nothing):
    seen, paused = running(worker(1), worker(2)), saved(**nothing)
    first = decide(seen, paused)
    assert kinds(first, SaveJob, StopJob, DeletePod) == [SaveJob(1)]
    second = decide(replace(seen, status=first.status, saving=CheckpointSaving(1, url="/ckpt/v9")), paused)
    assert kinds(second, SaveJob, StopJob, DeletePod) == [StopJob(f"{CAUSE}: suspended")]
    gone = decide(ObservedJob(second.status), paused)
    assert (gone.status.phase, gone.status.checkpoint) == (SUSPENDED, "/ckpt/v9")
    back = decide(ObservedJob(gone.status), saved())
    assert kinds(back, *PODS) == [
        Ensure(),
        StartCoordinator(2, Counts(2, 0), restore=True, begins=True),
        StartNode(Role.WORKER, 3),
        StartNode(Role.WORKER, 4),
    ]


def test_where_all_its_pods_were_lost_it_goes_back_to_its_checkpoint():
    lost = ObservedJob(ElasticJobStatus(phase=RUNNING, term=1, trained=True))
    assert decide(lost, serverless()).status.phase == FAILED
    found = decide(lost, saved())
    assert (found.status.phase, found.status.reason) == (SUSPENDED, "all its pods were lost")
    assert kinds(decide(ObservedJob(found.status), saved()), StartCoordinator) == [
        StartCoordinator(2, Counts(2, 0), restore=True, begins=True)
    ]


def test_it_is_saved_before_it_is_deleted():
    assert kinds(decide(running(worker(1)), saved(deleting=True)), SaveJob, StopJob) == [SaveJob(1)]


def test_its_coordinator_and_workers_reach_the_same_storage():
    """Workers write the parts of a checkpoint and read all of it, and the coordinator writes what makes it valid."""
    volume = {"name": "saved", "persistentVolumeClaim": {"claimName": "shared"}}
    mount = {"name": "saved", "mountPath": "/ckpt"}
    variable = {"name": "AWS_PROFILE", "value": "saves"}
    own = {"command": ["python", "x.py"], "volumeMounts": [mount], "env": [variable]}
    one = saved(workers={**SPEC["workers"], "template": {"spec": {"containers": [own], "volumes": [volume]}}})
    pods = (
        manifests.coordinator_pod(one, StartCoordinator(2, Counts(2, 0), restore=True), DEFAULTS),
        manifests.node_pod(one, StartNode(Role.WORKER, 3), DEFAULTS, "10.96.0.9"),
    )
    for pod in pods:
        assert volume in pod["spec"]["volumes"]
        assert mount in container_of(pod)["volumeMounts"]
        assert variable in container_of(pod)["env"]
    command = container_of(pods[0])["command"]
    assert command[command.index("--checkpoint") + 1] == "/ckpt/digits-uid-1234"
    assert command[command.index("--restore") + 1] == "/ckpt/digits-uid-1234"
    assert command[command.index("--servers") + 1] == "0"


def test_its_pods_have_their_gpus_and_are_told_the_mode():
    template = {"spec": {"containers": [{"image": "torch:1", "command": ["python", "x.py"], "resources": GPU}]}}
    one = serverless(workers={**SPEC["workers"], "template": template})
    pod = manifests.node_pod(one, StartNode(Role.WORKER, 1), DEFAULTS, "10.96.0.9")
    container = container_of(pod)
    assert (container["image"], container["resources"]) == ("torch:1", GPU)
    assert container["command"][container["command"].index("--mode") + 1] == "all-reduce"
    assert pod["metadata"]["annotations"]["dl2.scheduler/gang"] == "1,0"
    coordinator = container_of(manifests.coordinator_pod(one, StartCoordinator(1, Counts(2, 0)), DEFAULTS))
    assert coordinator["command"][coordinator["command"].index("--servers") + 1] == "0"
    assert "limits" not in coordinator["resources"]


def test_others_are_not_told_a_mode_as_their_images_may_be_older():
    pod = manifests.node_pod(job(), StartNode(Role.WORKER, 1), DEFAULTS, "10.96.0.9")
    assert "--mode" not in container_of(pod)["command"]


def test_evictions_leave_workers():
    (budget,) = manifests.budgets(serverless())
    assert budget["metadata"]["name"] == "digits-workers"


def test_its_coordinator_is_asked_for_workers_alone():
    asked = []

    class Client:
        def scale(self, workers, servers, cause):
            asked.append((workers, servers))

    requests = CoordinatorRequests("digits", lambda seconds: None)
    for counts in (Counts(3, 0), Counts(3, 1)):
        asyncio.run(requests.ask(Client(), RequestScale(counts, "why")))
    assert asked == [(3, None), (3, 1)]
