"""Jobs of mode all-reduce on Kubernetes: the operator makes workers alone, and asks for nothing else."""

import asyncio

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
    WriteEvent,
)
from k8s.elastic_operator.job.manifests import Defaults
from k8s.elastic_operator.job.model import Counts
from k8s.elastic_operator.job.reconciliation import ObservedJob
from tests.k8s.operator_cases import PODS, SPEC, TAKEN, decide, job, kinds, running, worker

DEFAULTS = Defaults(image="runtime:1")
GPU = {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}


def serverless(**spec):
    return job(without=("servers", "checkpoint"), mode="all-reduce", **spec)


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
    assert said["NoCheckpoint"].startswith("clusters do not save jobs without servers yet")


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


def test_that_trains_it_is_not_suspended():
    found = decide(running(worker(1)), serverless(suspend=True))
    assert not kinds(found, SaveJob, DeletePod)
    assert found.status.conditions["Suspended"].reason == "NoCheckpoint"
    assert found.status.conditions["Suspended"].message == "it goes on: without servers it could not come back"


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
