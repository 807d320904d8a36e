"""A node's power is cut, a node hangs: its pods are replaced elsewhere, and what wakes up on it is nobody any more."""

import copy

import pytest

from tests.kube.kube_cluster import until
from tests.kube.test_kube_faults import assert_undisturbed
from tests.kube.test_kube_smoke import REGRESSION

HOST = "kubernetes.io/hostname"


@pytest.fixture
def victim(release):
    """A node without the operator."""
    used = release.operators().values()
    return next(name for name in ("node-1", "node-2") if name not in used)


def spread(job, node):
    """Its workers go to all nodes; its servers and its coordinator to any but this."""
    spec = job.document["spec"]
    template = copy.deepcopy(spec["workers"]["template"])
    del template["spec"]["containers"][0]["command"]
    other = {"matchExpressions": [{"key": HOST, "operator": "NotIn", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [other]}}
    template["spec"]["affinity"] = {"nodeAffinity": required}
    spec["servers"]["template"] = template
    spec["workers"]["template"]["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": HOST,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"dl2.scheduler/job": job.name, "dl2.scheduler/role": "worker"}},
        }
    ]


def nodes_of(job, role):
    return {pod["spec"].get("nodeName") for pod in job.pods(role) if "deletionTimestamp" not in pod["metadata"]}


@pytest.mark.parametrize(("crash", "mend"), [("stop", "start"), ("pause", "resume")])
def test_a_node_that_does_not_answer(cluster, make_job, victim, crash, mend):
    job = make_job(f"node-{crash}", REGRESSION, 2, 1)
    spread(job, victim)
    job.apply()
    job.running(2, 1)
    assert len(nodes_of(job, "worker")) == 2
    assert victim not in nodes_of(job, "server")
    cluster.node(crash, victim)
    try:
        job.until(lambda status: status["restarts"] >= 1, "the death is counted")
        job.running(2, 1)
        assert victim not in nodes_of(job, "worker")
        job.trained(2)
    finally:
        cluster.node(mend, victim)
    ready = ["wait", f"node/{victim}", "--for=condition=Ready", "--timeout=90s"]
    cluster.kubectl(*ready)
    until(lambda: len(job.pods("worker")) == 2, "the old pods are gone", 120, job.tell)
    job.running(2, 1)
    assert_undisturbed(job)
