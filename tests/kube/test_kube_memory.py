"""Pods that share memory where the document names a folder, and have time to hand over what they hold."""

import pytest

from tests.kube.kube_cluster import until
from tests.kube.test_kube_smoke import REGRESSION


@pytest.fixture
def folder(place):
    """Of the nodes; all of the tool's nodes have this machine's."""

    def make(name, mode):
        path = place.shared / name
        path.mkdir()
        path.chmod(mode)
        return path

    return make


def on_one_node(job, node):
    """Have all pods of a job on one node; servers take the workers' surroundings."""
    job.document["spec"]["workers"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return job


@pytest.fixture
def node(cluster):
    """A node whose pods run."""
    for found in cluster.get("nodes")["items"]:
        ready = [one["status"] for one in found["status"]["conditions"] if one["type"] == "Ready"]
        if found["metadata"]["name"].startswith("node-") and ready == ["True"]:
            return found["metadata"]["name"]
    pytest.fail("no node of the tool's is ready")


def test_pods_of_one_node_share_memory_and_leave_nothing(make_job, folder, node):
    shared = folder("memory", 0o1777)
    job = on_one_node(make_job("sharing", REGRESSION, workers=2, sharedMemory={"hostPath": str(shared)}), node)
    job.apply()
    job.running(2, 1)
    job.until(lambda status: status.get("transport") == "shm", "memory is shared", 60)
    (mine,) = shared.iterdir()
    assert mine.name.startswith(f"{job.namespace}-sharing-")
    assert [path.is_socket() for path in mine.iterdir()] == [True]
    job.trained(2)
    job.kill(job.living("worker")[0])
    job.until(lambda status: status.get("restarts", 0) == 1, "the death is counted")
    job.running(2, 1)
    job.prove_so_far()
    job.finish()
    until(lambda: not list(mine.iterdir()), "the server's socket goes", 60, job.tell)


def test_without_the_field_tensors_go_by_tcp(make_job, node):
    job = on_one_node(make_job("apart", REGRESSION), node)
    job.apply()
    job.running(1, 1)
    found = job.until(lambda status: status.get("transport"), "how tensors travel is told", 60)
    assert found["transport"] == "tcp"


def test_a_later_server_has_time_for_what_servers_hold(make_job):
    job = make_job("growing", REGRESSION)
    job.apply()
    job.running(1, 1)
    job.until(lambda status: status.get("serverBytes", 0) > 0, "what a server holds is known", 60)
    job.scale(1, 2)
    job.running(1, 2)
    seconds = {pod["spec"]["terminationGracePeriodSeconds"] for pod in job.pods("server")}
    assert seconds == {60, 61}  # the model is small


def test_a_folder_that_pods_cannot_write_to_is_named_in_the_status(make_job, folder, node):
    closed = folder("closed", 0o755)
    job = on_one_node(make_job("closed", REGRESSION, sharedMemory={"hostPath": str(closed)}), node)
    job.apply()
    job.running(1, 1)
    found = job.until(lambda status: status.get("transport", "").startswith("tcp"), "TCP is told", 60)
    assert "user 65532 cannot write to the folder" in found["transport"]


def test_the_api_server_refuses_what_is_no_folder_and_a_change(make_job):
    job = make_job("wrong", REGRESSION, sharedMemory={"hostPath": "/dev/../etc"})
    assert "give an absolute path without .., as in /dev/shm/dl2" in job.apply(check=False).stderr
    job.document["spec"] |= {"sharedMemory": {"hostPath": "/dev/shm/dl2"}, "suspend": True, "checkpoint": {"url": "/x"}}
    job.apply()
    job.document["spec"]["sharedMemory"] = {"hostPath": "/dev/shm/other"}
    assert "sharedMemory cannot change" in job.apply(check=False).stderr
