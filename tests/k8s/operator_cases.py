"""Jobs as the operator may see them, for tests of `reconcile.plan`."""

from dataclasses import replace

from elastic_ps.core.configuration import Role
from k8s.elastic_operator.job.actions import DeletePod, Ensure, StartCoordinator, StartNode
from k8s.elastic_operator.job.model import Counts, Desired
from k8s.elastic_operator.job.pods import Pod
from k8s.elastic_operator.job.reconcile import plan
from k8s.elastic_operator.job.reconciliation import ApiVerdict, ObservedJob
from k8s.elastic_operator.job.report import CoordinatorReport
from k8s.elastic_operator.job.status import RUNNING, ElasticJobStatus

NOW = 1_700_000_000.0
PODS = (Ensure, StartCoordinator, StartNode, DeletePod)
"""Actions about pods."""
SPEC = {
    "modelType": "digits",
    "scaling": "Manual",
    "workers": {
        "min": 1,
        "max": 4,
        "replicas": 2,
        "template": {"spec": {"containers": [{"command": ["python", "x.py"]}]}},
    },
    "servers": {"min": 1, "max": 2, "replicas": 1},
    "checkpoint": {"url": "/ckpt", "interval": "30s"},
}
TAKEN = ApiVerdict(3)
"""What the API server says of pods that it would make."""
COORDINATOR = Pod("digits-coordinator", None, address="10.0.0.1")


def job(deleting=False, finalizer=True, without=(), **spec):
    """The document, with some fields of its spec changed, and some left out."""
    whole = {**SPEC, **spec}
    return Desired(
        "digits", "ns", "uid-12345678", 3, deleting, finalizer, {k: v for k, v in whole.items() if k not in without}
    )


def wanted(workers, servers, **more):
    """The document with other replicas."""
    return job(
        workers={**SPEC["workers"], "replicas": workers}, servers={**SPEC["servers"], "replicas": servers}, **more
    )


def worker(number, **more):
    return Pod(f"digits-worker-{number}", Role.WORKER, **{"member": f"w{number - 1}", "joined": True, **more})


def server(number, **more):
    return Pod(f"digits-server-{number}", Role.SERVER, **{"member": f"s{number - 1}", "joined": True, **more})


def members(*pods):
    """As the coordinator has them."""
    return {f"{pod.name}.1": pod.member for pod in pods}


def running(*pods, report=None, status=None, **more):
    """A job that trains, seen with these node pods, all of them members unless `report` says otherwise."""
    counts = Counts(*(sum(pod.role is role and pod.alive for pod in pods) for role in (Role.WORKER, Role.SERVER)))
    given = {"phase": "running", "wanted": counts, "roster": counts, "version": 100, "members": members(*pods)}
    said = CoordinatorReport(**{**given, **(report or {})})
    known = ElasticJobStatus(phase=RUNNING, term=1, trained=True, created=Counts(2, 1), observed_generation=3)
    return ObservedJob(replace(known, **(status or {})), (COORDINATOR, *pods), said, **{"prepared": 3, **more})


def usual(**more):
    """Two workers and a server that train."""
    return running(worker(1), worker(2), server(1), **more)


def kinds(decision, *types):
    """The decision's actions of some types."""
    return [action for action in decision.actions if isinstance(action, types)]


def decide(seen, desired, now=NOW):
    return plan(seen, desired, now)
