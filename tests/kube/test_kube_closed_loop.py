"""The closed loop on real pods: a policy scales a job that trains, and learns; people hold it and give it back."""

import json
import os

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.learning.networks import new_policy
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.policies.learnt.dl2 import load
from dl2_scheduler.policies.learnt.pooled_network import speed_shapes
from dl2_scheduler.policies.learnt.pooled_speed import PooledSpeed
from dl2_scheduler.policies.placement.speed_model import SpeedModel, save_speed_model
from tests.kube.kube_cluster import until
from tests.kube.scheduling import Schedulers

REGRESSION = ["{sources}/tests/e2e/scripts/regression.py", "{folder}"]


@pytest.fixture
def schedulers(cluster, release, tmp_path):
    assert os.environ["KUBECONFIG"]
    with Schedulers(release.namespace, tmp_path) as made:
        yield made


@pytest.fixture
def loop(make_job, place):
    """A job that trains until it is told to finish, for a policy to scale."""
    job = make_job(
        "loop", REGRESSION, epochs=100000, scaling="Scheduler", checkpoint={"url": "shared", "interval": "2s"}
    )
    for role in ("workers", "servers"):
        template = job.document["spec"][role].get("template") or place.template((), "dl2")
        template["spec"]["schedulerName"] = "dl2"
        job.document["spec"][role] = {"min": 1, "max": 2, "template": template}
    return job


def dl2(*words):
    found = CliRunner().invoke(app, list(map(str, words)))
    assert found.exit_code == 0, found.output
    return found.output


def write(run):
    """A run whose policy has learnt nothing, but grants whatever fits; its name."""
    policy = new_policy(["test"], seed=1)
    with torch.no_grad():
        policy.stop.bias.fill_(-20.0)
    folder = RunFolder(run)
    folder.begin({"network": "shared", "seed": 1})
    folder.save(policy.weights(), {"policy": policy.state_dict(), "models": policy.models, "updates": 0})
    return f"dl2:{run}"


def test_a_policy_scales_a_training_job_and_people_hold_it(loop, release, schedulers):
    def of_kube(*words):
        return dl2(*words, "--kube", "--namespace", release.namespace)

    loop.apply()
    first = schedulers.serve()
    loop.running(2, 2)
    schedulers.leads()
    loop.prove_so_far()
    assert "all that it can use" in of_kube("why", "loop")
    of_kube("hold", "loop")
    of_kube("scale", "loop", "--workers", "1", "--servers", "1")
    loop.running(1, 1)
    first.kill()
    first.wait()
    loop.trained(2)
    of_kube("release", "loop")
    schedulers.serve()
    loop.running(2, 2)
    assert all(pod["spec"]["schedulerName"] == "dl2" for pod in loop.pods())
    of_kube("hold", "loop")
    loop.patch(suspend=True)
    loop.phase("Suspended")
    until(lambda: not loop.living("worker"), "its pods go", 60, loop.tell)
    of_kube("release", "loop")
    loop.running(2, 2)
    loop.finish()


@pytest.mark.timeout(900)
def test_a_learnt_policy_scales_a_training_job_and_learns_from_it(loop, release, schedulers, tmp_path):
    policy, folder = write(tmp_path / "run"), tmp_path / "serve-1"
    schedulers.serve(1, "--learn", "--guard-slots", "100")
    schedulers.leads()
    dl2("policy", "--folder", folder, "use", policy)
    loop.apply()
    loop.running(2, 2)
    decisions = json.loads(dl2("why", "loop", "--kube", "--namespace", release.namespace, "--json"))["decisions"]
    assert {each["policy"] for each in decisions} == {policy}
    assert (decisions[-1]["workers"], decisions[-1]["servers"]) == (2, 2)

    def told():
        return json.loads(dl2("policy", "--folder", folder, "--json"))

    until(lambda: int(told().get("updates", 0)) >= 3, "three updates", 120, lambda: schedulers.log())
    until(lambda: told().get("comparison"), "the guard compares", 120, lambda: schedulers.log())
    assert told()["deciding"] == policy
    before, now = (load(each).arrays for each in (tmp_path / "run" / "before-live", tmp_path / "run"))
    assert any((now[name] != before[name]).any() for name in before), "the policy that decides has learnt"
    loop.trained(2)
    loop.prove_so_far()
    loop.finish()


def model_of_speeds(folder, apart):
    """Write a model by which a job is exp(`apart`) times as fast where none of its workers is beside a server."""
    sizes = {"task.0.bias": (8,), "job.0.bias": (8,), "kind.weight": (2, 4)}
    arrays = {name: np.zeros(shape, np.float32) for name, shape in speed_shapes(1, sizes).items()}
    arrays["job.0.weight"][0, 4] = arrays["job.2.weight"][0, 0] = 1.0  # the part of pairs that share no node
    arrays["job.4.weight"][0, 0] = apart
    save_speed_model(folder, SpeedModel(("test",), speeds=PooledSpeed(arrays, np.array([100.0]))))


@pytest.mark.timeout(900)
def test_tasks_move_to_another_node_where_it_pays_and_the_job_trains_on(loop, release, schedulers, tmp_path):
    def of_kube(*words):
        return dl2(*words, "--kube", "--namespace", release.namespace)

    def nodes():
        return {
            role: {
                pod["spec"].get("nodeName") for pod in loop.pods(role) if pod["metadata"]["name"] in loop.living(role)
            }
            for role in ("worker", "server")
        }

    model_of_speeds(tmp_path / "model", 3.0)
    schedulers.serve(1, "--placement", f"local-search:{tmp_path}/model", "--move-tasks", "2")
    schedulers.leads()
    loop.apply()
    loop.running(2, 2)
    of_kube("hold", "loop")
    of_kube("scale", "loop", "--workers", "1", "--servers", "1")
    loop.running(1, 1)
    of_kube("release", "loop")
    loop.running(2, 2)  # it was scaled while it trained: what a join costs is known, and that its tasks may come and go
    loop.trained(2)
    before = nodes()
    assert before["worker"].isdisjoint(before["server"])
    assert "Moved" not in loop.events()
    model_of_speeds(tmp_path / "model", -3.0)
    until(lambda: "Moved" in loop.events(), "tasks move", 120, lambda: schedulers.log())
    until(lambda: len(set().union(*nodes().values())) == 1, "they are together", 180, lambda: schedulers.log())
    loop.running(2, 2)
    assert "tasks move from node-" in of_kube("why", "loop")
    assert "where it was moved to" in schedulers.log()
    assert loop.events().count("NodeDied") == 0
    loop.trained(2)
    loop.finish()
