"""Jobs in real pods: from apply to Completed, scaled, a server killed; and the chart's uninstall leaves nothing."""

from tests.kube.kube_cluster import until

DIGITS = ["{sources}/examples/digits.py", "--epochs"]
REGRESSION = ["{sources}/tests/e2e/scripts/regression.py", "{folder}"]


def test_a_job_from_apply_to_completed_with_its_accuracy(make_job):
    job = make_job("digits", [*DIGITS, 12])
    job.apply()
    ended = job.phase("Completed")
    assert ended["metrics"]["accuracy"] > 0.9
    assert ended["epoch"] == 12
    assert ended["samplesPerEpoch"] == 1437
    printed = job.kubectl("get", "elasticjobs").stdout.splitlines()
    assert printed[0].split() == ["NAME", "PHASE", "WORKERS", "SERVERS", "EPOCH", "SPEED", "ENDS", "AGE", "REASON"]
    until(lambda: not job.living("coordinator"), "its coordinator goes", 60, job.tell)
    job.kubectl("wait", f"elasticjob/{job.name}", "--for=condition=Completed", "--timeout=1s")


def test_a_job_is_scaled_and_survives_a_servers_death_from_its_checkpoint(make_job):
    job = make_job("scaled", REGRESSION, checkpoint={"url": "shared", "interval": "2s"})
    job.apply()
    job.running(1, 1)
    job.kubectl("scale", f"elasticjob/{job.name}", "--replicas=2")
    job.running(2, 1)
    job.prove_so_far()
    until(lambda: list(job.folder.glob("checkpoints/*/*")), "a checkpoint", 60, job.tell)
    (server,) = job.living("server")
    job.kill(server)
    job.until(lambda status: status.get("restarts", 0) == 1, "the death is counted")
    job.running(2, 1)
    job.trained(2)
    job.prove_so_far()
    weights = job.finish()
    assert int(weights["epochs"]) > 2


def test_uninstall_ends_jobs_in_order_and_leaves_nothing(cluster, release, make_job):
    job = make_job("last", REGRESSION, checkpoint={"url": "shared"})
    job.apply()
    job.running(1, 1)
    release.upgrade("--set", "definition=false")
    job.running(1, 1)
    job.trained(1)  # before its first step there is nothing to save
    release.uninstall()
    assert list(job.folder.glob("checkpoints/*/*")), "no checkpoint was made before the end"
    until(lambda: not left_of(cluster, release), "nothing is left", 90, lambda: str(left_of(cluster, release)))
    assert cluster.defines_jobs(), "the definition goes with all jobs of the cluster: that takes a person"


def left_of(cluster, release):
    """What is in the release's namespace, or has its label, and is not every namespace's."""
    found = []
    inside = (
        "pods,services,deployments,replicasets,jobs,secrets,configmaps,pdb,leases,serviceaccounts,roles,rolebindings"
    )
    inside += ",elasticjobs"
    for words in (
        (inside, "-n", release.namespace),
        (
            "clusterroles,clusterrolebindings,validatingadmissionpolicies",
            "-l",
            f"app.kubernetes.io/instance={release.name}",
        ),
    ):
        found += [f"{item['kind']} {item['metadata']['name']}" for item in cluster.get(*words)["items"]]
    return sorted(set(found) - {"ConfigMap kube-root-ca.crt", "ServiceAccount default"})
