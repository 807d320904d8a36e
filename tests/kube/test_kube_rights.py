"""Service accounts may do what they must, and nothing else; pods are as little as training needs."""

import json

import pytest

from tests.kube.test_kube_smoke import REGRESSION


@pytest.fixture
def may(cluster, release):
    """Asks what an account of the chart may do."""

    def ask(account, verb, what, namespace=None):
        who = f"system:serviceaccount:{release.namespace}:{account}"
        what, _, part = what.partition("/")
        words = (
            "auth",
            "can-i",
            verb,
            what,
            f"--subresource={part}",
            "-n",
            namespace or release.namespace,
            "--as",
            who,
        )
        return cluster.kubectl(*words, check=False).stdout.strip() == "yes"

    return ask


@pytest.mark.parametrize(
    ("verb", "what"),
    [
        ("get", "secrets"), ("list", "secrets"), ("delete", "secrets"), ("patch", "secrets"),
        ("create", "pods/exec"), ("create", "deployments.apps"),
        ("create", "clusterrolebindings.rbac.authorization.k8s.io"),
        ("delete", "nodes"), ("patch", "nodes"), ("create", "elasticjobs.dl2.scheduler"), ("delete", "services"),
        ("list", "persistentvolumeclaims"), ("patch", "persistentvolumeclaims"), ("delete", "persistentvolumeclaims"),
        ("delete", "leases.coordination.k8s.io"), ("create", "serviceaccounts/token"),
    ],
)  # fmt: skip
def test_the_operator_may_not(may, verb, what):
    assert not may("dl2-operator", verb, what)


@pytest.mark.parametrize(
    ("verb", "what"),
    [
        ("create", "pods"),
        ("delete", "pods"),
        ("create", "secrets"),
        ("create", "persistentvolumeclaims"),
        ("update", "elasticjobs.dl2.scheduler/status"),
    ],
)
def test_the_operator_may_where_its_jobs_are_and_nowhere_else(may, verb, what):
    assert may("dl2-operator", verb, what)
    assert not may("dl2-operator", verb, what, "kube-system")


def test_who_tries_is_refused_by_the_server(cluster, release):
    who = f"system:serviceaccount:{release.namespace}:dl2-operator"
    refused = cluster.kubectl("-n", release.namespace, "get", "secrets", "--as", who, check=False)
    assert "forbidden" in refused.stderr.lower()


def test_pods_of_a_job_have_no_rights_and_no_secret_in_their_environment(make_job):
    job = make_job("bare", REGRESSION)
    job.apply()
    job.running(1, 1)
    pods = job.pods()
    assert len(pods) == 3
    of_job = "-l", "dl2.scheduler/job=bare"
    token = job.kubectl("get", "secret", *of_job, "-o", "jsonpath={.items[0].data.token}").stdout
    for pod in pods:
        spec, container = pod["spec"], pod["spec"]["containers"][0]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"] is True
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert token not in json.dumps(pod)
    (worker,) = job.living("worker")
    python = job.document["spec"]["workers"]["template"]["spec"]["containers"][0]["command"][0]
    tried = job.kubectl(
        "exec", worker, "--", python, "-c", "import os; print(os.getuid()); open('/x', 'w')", check=False
    )
    assert tried.stdout.strip() == "65532"
    assert "Read-only file system" in tried.stderr
