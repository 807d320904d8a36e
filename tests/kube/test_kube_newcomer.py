"""What a new user does wrong, and what a cluster's people do to their nodes: it stays one job's, and is said there."""

import copy
import json
import subprocess
import sys
import time

import pytest
import yaml

from tests.kube.kube_cluster import ROOT, until
from tests.kube.kube_release import CHART
from tests.kube.test_kube_faults import assert_undisturbed
from tests.kube.test_kube_smoke import REGRESSION

HOST = "kubernetes.io/hostname"
OPERATOR = "deploy/dl2-operator"


def condition(job, kind):
    found = [one for one in job.status.get("conditions", ()) if one["type"] == kind]
    return found[0] if found else {"status": "", "reason": "", "message": ""}


def refused(job, reason):
    """Wait until the job is not accepted, for this reason; returns the API server's sentence."""
    until(lambda: condition(job, "Accepted")["reason"] == reason, f"{job.name}: {reason}", 60, job.tell)
    assert job.pods() == []
    return condition(job, "Accepted")["message"]


def container(job):
    return job.document["spec"]["workers"]["template"]["spec"]["containers"][0]


def restarts(release):
    """Of the operator's containers."""
    words = ("-n", release.namespace, "-l", "app.kubernetes.io/component=dl2-operator")
    pods = release.cluster.get("pods", *words)["items"]
    return {pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods}


def test_faults_of_one_job_are_that_jobs(release, make_job):
    before = restarts(release)
    typo = make_job("typo", REGRESSION)
    container(typo)["imagePullPolcy"] = container(typo).pop("imagePullPolicy")
    letters = make_job("letters", REGRESSION)
    letters.document["spec"]["workers"]["template"]["spec"]["volumes"] = "notalist"
    nowhere = make_job("nowhere", REGRESSION, checkpoint={"url": "s3://no-such"})
    for job in (typo, letters, nowhere):
        job.apply()
    good = make_job("good", REGRESSION)
    good.apply()
    assert 'unknown field "spec.containers[0].imagePullPolcy"' in refused(typo, "InvalidTemplate")
    assert "volumes" in refused(letters, "InvalidTemplate")
    assert "s3fs" in refused(nowhere, "InvalidCheckpoint")
    good.running(1, 1)
    assert restarts(release) == before, "the operator fell"
    assert "imagePullPolcy" in typo.status["reason"]
    container(typo)["imagePullPolicy"] = container(typo).pop("imagePullPolcy")
    typo.apply()
    typo.running(1, 1)
    for changed, sentence in [
        ({"workers": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}, "templates cannot change"),
        ({"blockReplicas": 1}, "blockReplicas cannot change, as the job's coordinator was started with it"),
    ]:
        late = typo.kubectl("patch", "ej", "typo", "--type=merge", "-p", json.dumps({"spec": changed}), check=False)
        assert sentence in late.stderr
    assert 1 <= len(typo.events()) < 12


def test_a_quota_is_the_reason_and_no_flood(cluster, release, make_job):
    words = ("-n", release.namespace)
    ours = ("-l", "dl2.scheduler/job")
    until(lambda: not cluster.get("pods", *words, *ours)["items"], "pods of other tests have gone", 120)
    used = len(cluster.get("pods", *words)["items"])
    cluster.kubectl(*words, "create", "quota", "few", f"--hard=pods={used + 2}")
    try:
        until(lambda: cluster.get("quota", *words)["items"][0]["status"].get("used"), "the quota counts", 30)
        job = make_job("crowded", REGRESSION)
        job.apply()
        status = job.until(lambda status: "quota: " in status.get("reason", ""), "REASON says quota")
        assert 'pods "crowded-worker-1" is forbidden: exceeded quota: few' in status["reason"]
        begun = time.monotonic()
        time.sleep(10)
        listed = cluster.get("events", *words, "--field-selector", "involvedObject.name=crowded")["items"]
        warnings = [event for event in listed if event["type"] == "Warning" and "quota" in event["message"]]
        assert 1 <= len(warnings) <= 3, f"{len(warnings)} in {time.monotonic() - begun:.0f} s"
        assert job.status["created"]["workers"] == 1, "its number rises with each try"
    finally:
        cluster.kubectl(*words, "delete", "quota", "few")
    job.running(1, 1)


def test_a_service_of_somebody_else_is_left_alone_and_the_name_may_be_used_again(cluster, release, make_job):
    words = ("-n", release.namespace)
    cluster.kubectl(*words, "create", "service", "clusterip", "mine-coordinator", "--tcp=80:80")
    before = cluster.get("service", "mine-coordinator", *words)
    job = make_job("mine", REGRESSION)
    job.apply()
    job.until(lambda status: "is not this job's" in status.get("reason", ""), "REASON names the service")
    assert job.pods() == []
    assert cluster.get("service", "mine-coordinator", *words) == before
    cluster.kubectl(*words, "delete", "service", "mine-coordinator")
    job.running(1, 1)
    job.kubectl("delete", "elasticjob", "mine")
    job.apply()
    job.running(1, 1)


def test_the_pod_of_an_only_server_is_deleted_and_nothing_is_lost(make_job):
    """No checkpoint."""
    job = make_job("only", REGRESSION, 2, 1)
    job.apply()
    job.running(2, 1)
    (server,) = job.living("server")
    job.kubectl("delete", "pod", server, "--wait=false")
    until(lambda: server not in [pod["metadata"]["name"] for pod in job.pods("server")], "it has gone", 120, job.tell)
    status = job.running(2, 1)
    assert (status["restarts"], status["term"]) == (0, 1)
    assert job.living("server") != [server]
    job.prove_so_far()
    assert_undisturbed(job)


def prefer(job, node):
    """Its servers and its coordinator go to this node if it takes any; its workers to the others."""
    spec = job.document["spec"]
    template = copy.deepcopy(spec["workers"]["template"])
    del template["spec"]["containers"][0]["command"]
    here = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
    there = {"matchExpressions": [{"key": HOST, "operator": "NotIn", "values": [node]}]}
    wish = [{"weight": 100, "preference": here}]
    template["spec"]["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wish}}
    spec["servers"]["template"] = template
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [there]}}
    spec["workers"]["template"]["spec"]["affinity"] = {"nodeAffinity": required}


@pytest.fixture
def two_operators(cluster, release):
    """As the chart has it by default; returns the node of the one that leads."""
    words = ("-n", release.namespace)
    cluster.kubectl(*words, "scale", OPERATOR, "--replicas=2")
    cluster.kubectl(*words, "rollout", "status", OPERATOR, "--timeout=180s")
    holder = cluster.get("lease", "dl2-operator", *words)["spec"]["holderIdentity"]
    nodes = release.operators()
    assert len(set(nodes.values())) == 2, f"both are on one node: {nodes}"
    yield next(node for name, node in nodes.items() if holder.startswith(name))
    cluster.kubectl(*words, "scale", OPERATOR, "--replicas=1")
    until(lambda: len(release.operators()) == 1, "one operator", 60)


def test_a_drained_node_takes_operator_coordinator_and_the_only_server_along(cluster, two_operators, make_job):
    """No checkpoint: what the server holds is handed over while its job has neither of the other two."""
    node = two_operators
    job = make_job("drained", REGRESSION, 1, 1)
    prefer(job, node)
    job.apply()
    before = job.running(1, 1)
    assert {pod["spec"]["nodeName"] for role in ("server", "coordinator") for pod in job.pods(role)} == {node}
    words = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=200s")
    try:
        cluster.kubectl("drain", node, *words, timeout=240)
    finally:
        cluster.kubectl("uncordon", node)
    status = job.running(1, 1)
    assert status["term"] > before["term"], "the coordinator has not gone"
    assert node not in {
        pod["spec"]["nodeName"] for pod in job.pods("server") if "deletionTimestamp" not in pod["metadata"]
    }
    assert not {"Restoring", "AllLost", "Failed"} & set(job.events())
    assert_undisturbed(job)


def test_manifests_that_are_applied_again_leave_running_jobs_connected_and_another_key_is_said(
    cluster, release, make_job
):
    words = ("-n", release.namespace)
    job = make_job("keyed", REGRESSION)
    job.apply()
    job.running(1, 1)
    rendered = cluster.helm("template", release.name, CHART, *words, "--no-hooks", "--kube-version", "1.34").stdout
    assert "Secret" not in {found["kind"] for found in yaml.safe_load_all(rendered) if found}
    secret = cluster.get("secret", "dl2-operator-key", *words)
    _replace_key(cluster, release, "another key than the one before")
    said = job.until(lambda status: "refuses this operator's token" in status.get("reason", ""), "it says so")
    assert said["phase"] == "Running"
    job.kubectl("scale", "ej/keyed", "--replicas=2")
    until(lambda: condition(job, "Scaled")["reason"] == "TokenRefused", "the scaling is not ignored", 60, job.tell)
    (operator,) = release.operators()
    assert "refuses the token" in cluster.kubectl(*words, "logs", operator).stdout
    _replace_key(cluster, release, None, secret["data"])
    job.running(2, 1)


def _replace_key(cluster, release, text, data=None):
    """Another operator's key, and the operator anew."""
    words = ("-n", release.namespace)
    given = {"data": data} if data else {"stringData": {"key": text}}
    cluster.kubectl(*words, "delete", "secret", "dl2-operator-key")
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "dl2-operator-key"}, **given}
    cluster.kubectl(*words, "create", "-f", "-", text=json.dumps(body))
    (old,) = release.operators()
    cluster.kubectl(*words, "delete", "pod", old, "--wait=false")
    until(lambda: release.operators() and old not in release.operators(), "another operator", 60)


@pytest.mark.parametrize(
    ("role", "may", "may_not"),
    [
        ("edit", [("create", "elasticjobs"), ("delete", "elasticjobs"), ("patch", "elasticjobs/scale")], []),
        ("view", [("get", "elasticjobs"), ("watch", "elasticjobs")], [("create", "elasticjobs")]),
    ],
)  # fmt: skip
def test_roles_of_users_are_those_of_the_cluster(cluster, release, role, may, may_not):
    words, user = ("-n", release.namespace), f"{role}-user"
    cluster.kubectl(*words, "create", "rolebinding", user, f"--clusterrole={role}", f"--user={user}")

    def can(verb, what):
        what, _, part = what.partition("/")
        asked = (*words, "auth", "can-i", verb, f"{what}.dl2.scheduler", f"--subresource={part}", "--as", user)
        return cluster.kubectl(*asked, check=False).stdout.strip() == "yes"

    try:
        until(lambda: all(can(*each) for each in may), f"{role} may", 30)
        assert not any(can(*each) for each in may_not)
    finally:
        cluster.kubectl(*words, "delete", "rolebinding", user)


def elasticctl(*words):
    """As a user runs it; status and what it prints."""
    program = "from coordinator.ctl.cli import main; main()"
    command = [sys.executable, "-c", program, *words, "--kube"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_elasticctl_asks_and_acts_from_outside_and_inside_and_a_foreground_deletion_does_not_wait(make_job):
    job = make_job("asked", REGRESSION, 1, 1, checkpoint={"url": "shared"})
    job.apply()
    job.running(1, 1)
    job.prove_so_far()
    here = ("--namespace", job.namespace)
    assert elasticctl("ledger", "asked", *here).stdout.startswith("s0 ")
    proof = elasticctl("audit", "asked", *here)
    assert (proof.returncode, "exactly once" in proof.stdout) == (0, True), proof.stdout + proof.stderr
    assert "saved version" in elasticctl("checkpoint", "asked", *here).stdout
    cancelled = elasticctl("cancel", "asked", *here)
    assert (cancelled.returncode, cancelled.stderr.strip()) == (5, "elasticctl: no plan is under way")
    python = str(ROOT / ".venv" / "bin" / "python")
    program = "from coordinator.ctl.cli import main; main()"
    within = job.kubectl("exec", "asked-coordinator", "--", python, "-c", program, "audit")
    assert "exactly once" in within.stdout
    job.scale(2, 1)
    job.running(2, 1)
    evicted = elasticctl("evict", "asked", "w1", *here)
    assert "w1 is expelled; the others go on without it" in evicted.stdout, evicted.stderr
    job.until(lambda status: any("death of w1" in plan["cause"] for plan in status.get("plans", ())), "w1 has gone")
    job.scale(1, 1)
    job.running(1, 1)
    assert "w0 drains" in elasticctl("drain", "asked", "w0", *here).stdout
    job.until(lambda status: any("w0" in plan["left"] for plan in status.get("plans", ())), "w0 has left")
    job.running(1, 1)
    begun = time.monotonic()
    job.kubectl("delete", "ej", "asked", "--cascade=foreground", "--timeout=110s")
    assert time.monotonic() - begun < 40
