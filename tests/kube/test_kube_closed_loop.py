"""The closed loop on real pods: a policy scales a job that trains; people hold it and give it back."""

import os

import pytest
from scheduling import Schedulers
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from tests.kube.kube_cluster import until

REGRESSION = ["{sources}/tests/e2e/scripts/regression.py", "{folder}"]


@pytest.fixture
def schedulers(cluster, release, tmp_path):
    assert os.environ["KUBECONFIG"]
    with Schedulers(release.namespace, tmp_path) as made:
        yield made


def test_a_policy_scales_a_training_job_and_people_hold_it(make_job, place, release, schedulers):
    def dl2(*words):
        found = CliRunner().invoke(app, [*words, "--kube", "--namespace", release.namespace])
        assert found.exit_code == 0, found.output
        return found.output

    job = make_job(
        "loop", REGRESSION, epochs=100000, scaling="Scheduler", checkpoint={"url": "shared", "interval": "2s"}
    )
    for role in ("workers", "servers"):
        template = job.document["spec"][role].get("template") or place.template((), "dl2")
        template["spec"]["schedulerName"] = "dl2"
        job.document["spec"][role] = {"min": 1, "max": 2, "template": template}
    job.apply()
    first = schedulers.serve()
    job.running(2, 2)
    schedulers.leads()
    job.prove_so_far()
    assert "all that it can use" in dl2("why", "loop")
    dl2("hold", "loop")
    dl2("scale", "loop", "--workers", "1", "--servers", "1")
    job.running(1, 1)
    first.kill()
    first.wait()
    job.trained(2)
    dl2("release", "loop")
    schedulers.serve()
    job.running(2, 2)
    assert all(pod["spec"]["schedulerName"] == "dl2" for pod in job.pods())
    dl2("hold", "loop")
    job.patch(suspend=True)
    job.phase("Suspended")
    until(lambda: not job.living("worker"), "its pods go", 60, job.tell)
    dl2("release", "loop")
    job.running(2, 2)
    job.finish()
