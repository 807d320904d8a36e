"""What the scheduler on Kubernetes shows by its socket, and to Prometheus."""

from dl2_scheduler.backends.kube.apiserver.object_reading import job_of, node_of, pod_of
from dl2_scheduler.backends.kube.readonly_view import Onlookers
from dl2_scheduler.live.metrics import ClusterMetrics
from tests.dl2_scheduler.kube_objects import NOW, job, node, pod


class View:
    """A cluster in which two jobs of one name run, in two namespaces."""

    def nodes(self):
        return [node_of(node("a"))]

    def pods(self):
        pods = []
        for namespace in ("default", "ml"):
            for role in ("coordinator", "worker"):
                made = pod(f"one-{role}-0", job="one", role=role, node="a", namespace=namespace)
                pods.append(pod_of(made))
        return pods

    def jobs(self):
        return [job_of(job("one", created=created, namespace=name)) for name, created in (("default", -5), ("ml", 30))]


def test_tasks_are_told_by_the_names_of_their_jobs_and_that_nobody_measures_them():
    load = Onlookers(View(), NOW).load()
    assert [(task.job, task.task) for task in load.tasks] == [
        ("ml/one", "coordinator-0"),
        ("ml/one", "worker-0"),
        ("one", "coordinator-0"),
        ("one", "worker-0"),
    ]
    assert load.isolation.endswith("usage not measured here: dl2 top --kube")


def test_prometheus_is_not_told_of_cores_that_nobody_measures():
    told = {family.name: family for family in ClusterMetrics(Onlookers(View(), NOW)).registry.collect()}
    assert told["dl2_node_used"].samples
    assert not told.keys() & {"dl2_task_cores", "dl2_task_memory_bytes"}


def test_jobs_are_known_by_when_they_came_as_in_snapshots():
    """Their decisions were found by when they were made: the scheduler's clock may be ahead of the API server's."""
    assert [(found.name, found.arrival) for found in Onlookers(View(), NOW).jobs()] == [("one", 0.0), ("ml/one", 30.0)]
