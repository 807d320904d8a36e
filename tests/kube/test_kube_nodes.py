"""A node's power is cut, a node hangs: its pods are replaced elsewhere, and what wakes up on it is nobody any more."""

import copy

import pytest
from kube_cluster import until
from test_kube_faults import finishes_as_undisturbed
from test_kube_smoke import REGRESSION

HOST = "kubernetes.io/hostname"


@pytest.fixture
def victim(cluster, release):
    """A node without the operator."""
    selector = "app.kubernetes.io/component=dl2-operator"
    found = cluster.get("pods", "-n", release.namespace, "-l", selector)["items"]
    used = {pod["spec"]["nodeName"] for pod in found}
    return next(name for name in ("node-1", "node-2") if name not in used)


def preferring(job, node):
    """Its workers go to this node while there is such a node; its servers and its coordinator to any other."""
    spec = job.document["spec"]
    template = copy.deepcopy(spec["workers"]["template"])
    del template["spec"]["containers"][0]["command"]
    spec["servers"]["template"] = template
    wanted, other = (
        {"matchExpressions": [{"key": HOST, "operator": operator, "values": [node]}]} for operator in ("In", "NotIn")
    )
    for role, rule in (
        ("workers", {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": wanted}]}),
        ("servers", {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [other]}}),
    ):
        spec[role]["template"]["spec"]["affinity"] = {"nodeAffinity": rule}


def nodes_of(job, role):
    return {pod["spec"].get("nodeName") for pod in job.pods(role) if "deletionTimestamp" not in pod["metadata"]}


@pytest.mark.parametrize(("crash", "mend"), [("stop", "start"), ("pause", "resume")])
def test_a_node_that_does_not_answer(cluster, make_job, victim, tmp_path, crash, mend):
    job = make_job(f"node-{crash}", REGRESSION, 2, 1)
    preferring(job, victim)
    job.apply()
    job.running(2, 1)
    assert nodes_of(job, "worker") == {victim}
    assert victim not in nodes_of(job, "server")
    cluster.node(crash, victim)
    try:
        job.until(lambda status: status["restarts"] == 2, "both deaths are counted")
        job.running(2, 1)
        assert victim not in nodes_of(job, "worker")
        job.trained(2)
    finally:
        cluster.node(mend, victim)
    ready = ["wait", f"node/{victim}", "--for=condition=Ready", "--timeout=90s"]
    cluster.kubectl(*ready)
    until(lambda: len(job.pods("worker")) == 2, "the old pods are gone", 120, job.tell)
    job.running(2, 1)
    finishes_as_undisturbed(job, tmp_path)
