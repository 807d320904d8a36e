"""What tests of launchers share: their runtime, orders to start one, and what one writes down of its job."""

from dataclasses import replace

from dl2_scheduler.backends.local.launchers.elasticrun import ElasticrunRuntime
from dl2_scheduler.backends.local.runtime import LaunchOrder, TaskShape
from dl2_scheduler.backends.local.tasks.isolation import NoIsolation
from dl2_scheduler.backends.local.tasks.task_files import TaskFiles


def elasticrun_runtime(folder, woken=lambda: None):
    """Return the runtime of a cluster's folder.

    Args:
        folder: the cluster's.
        woken: called when a launcher has ended.
    """
    return ElasticrunRuntime(folder, woken, TaskFiles(folder / "tasks", NoIsolation(), 2.0, 16.0))


def order(folder, /, **changes):
    """Return an order to start job `digits`, in its folder."""
    shape = TaskShape("digits", 3, {"worker": 1.0, "server": 1.0}, {"worker": {}, "server": {}})
    return replace(LaunchOrder(shape, 1700000000.5, 1, ("python", "x.py"), folder, 2, 1, "", None, 3), **changes)


def write_job_json(folder, text):
    """Write what a launcher of job `digits` would write down of it."""
    jobs = folder / "elastic_ps" / "jobs" / "digits"
    jobs.mkdir(parents=True, exist_ok=True)
    (jobs / "job.json").write_text(text)
