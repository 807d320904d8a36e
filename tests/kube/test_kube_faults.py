"""Whatever is killed, when ever: the cluster comes back to the spec, the result is that of an undisturbed run."""

import random

import pytest

from tests.e2e import proofs
from tests.kube.kube_cluster import until
from tests.kube.test_kube_smoke import REGRESSION

CHECKPOINT = {"url": "shared", "interval": "2s"}


def assert_undisturbed(job):
    """End it: its weights are those of a job of this machine that nothing happened to."""
    proofs.assert_undisturbed(job.finish(), seed=job.order)


@pytest.fixture
def regression(make_job):
    """A job that trains until it is told to finish."""

    def start(name, workers=2, servers=1, **spec):
        job = make_job(name, REGRESSION, workers, servers, **spec)
        job.apply()
        job.running(workers, servers)
        return job

    return start


def test_scaled_by_kubectl_in_both_roles(regression):
    job = regression("both", 1, 1)
    job.scale(3, 2)
    job.running(3, 2)
    job.scale(1, 1)
    status = job.running(1, 1)
    assert {plan["phase"] for plan in status["plans"]} == {"COMMITTED"}
    assert all(plan["seconds"] > 0 for plan in status["plans"])
    job.prove_so_far()
    until(lambda: len(job.pods("worker")) == 1, "drained pods go", 60, job.tell)
    assert_undisturbed(job)


def test_the_operator_killed_in_mid_plan(release, regression):
    job = regression("noop")
    job.scale(3, 2)
    (pod,) = release.operators()
    job.delete_at_once(pod)
    until(lambda: pod not in release.operators(), "the operator is gone", 30)
    job.running(3, 2)
    assert job.status["restarts"] == 0
    assert_undisturbed(job)


def test_the_coordinator_killed_in_mid_plan(regression):
    job = regression("nocoord")
    term = job.status["term"]
    job.scale(3, 2)
    job.delete_at_once("nocoord-coordinator")
    job.until(lambda status: status["term"] > term, "another term")
    job.running(3, 2)
    job.trained(2)
    assert_undisturbed(job)


def test_a_worker_killed_in_mid_plan(regression):
    job = regression("noworker")
    job.scale(3, 1)
    job.kill(job.living("worker")[0])
    job.until(lambda status: status["restarts"] == 1, "the death is counted")
    job.running(3, 1)
    job.prove_so_far()
    assert_undisturbed(job)


def test_a_server_killed_in_mid_plan_with_a_checkpoint(regression):
    job = regression("server", 1, 2, checkpoint=dict(CHECKPOINT))
    until(lambda: list(job.folder.glob("checkpoints/*/*")), "a checkpoint", 60, job.tell)
    job.scale(2, 2)
    job.kill(job.living("server")[0])
    job.until(lambda status: status["restarts"] >= 1, "the death is counted")
    job.running(2, 2)
    job.trained(2)
    assert_undisturbed(job)


def test_a_server_killed_where_its_blocks_have_replicas_costs_no_checkpoint(regression, tmp_path):
    job = regression("replicated", 2, 2, blockReplicas=1)
    with job.client() as client:
        term = client.status().term
        nodes = {pod["spec"]["nodeName"] for pod in job.pods("server")}
        assert {node.member.machine for node in client.status().nodes if node.member.role == 2} == nodes
        job.kill(job.living("server")[0])
        job.until(lambda status: status["restarts"] == 1, "the death is counted")
        job.running(2, 2)
        job.trained(2)
        assert client.status().term == term, "nothing was restored"
    job.prove_so_far()
    assert_undisturbed(job, tmp_path)


def test_a_server_killed_without_a_checkpoint_fails_the_job_with_the_reason(regression):
    job = regression("lost", 1, 2)
    job.kill(job.living("server")[0])
    failed = job.phase("Failed")
    assert "checkpoint" in failed["reason"]
    until(
        lambda: not any(job.living(role) for role in ("worker", "server", "coordinator")), "its pods end", 120, job.tell
    )


def test_all_pods_lost_at_once_with_a_checkpoint(regression):
    job = regression("allgone", 1, 1, checkpoint=dict(CHECKPOINT))
    until(lambda: list(job.folder.glob("checkpoints/*/*")), "a checkpoint", 60, job.tell)
    term = job.status["term"]
    for pod in job.pods():
        job.delete_at_once(pod["metadata"]["name"])
    job.until(lambda status: status["term"] > term, "another term")
    job.running(1, 1)
    job.trained(2)
    assert_undisturbed(job)


def test_suspended_with_a_checkpoint_and_back_again(regression):
    job = regression("paused", 1, 1, checkpoint={"url": "shared"})
    job.trained(2)
    job.suspend_and_return(1, 1)
    assert_undisturbed(job)


def test_20_random_scalings_in_a_row(regression):
    job = regression("storm", 1, 1)
    draw = random.Random(6)
    numbers = (1, 1)
    for _ in range(20):
        numbers = draw.choice([(w, s) for w in (1, 2, 3) for s in (1, 2) if (w, s) != numbers])
        job.scale(*numbers)
        if draw.random() < 0.5:
            job.running(*numbers)
    job.running(*numbers)
    job.prove_so_far()
    assert job.status["restarts"] == 0
    assert_undisturbed(job)
