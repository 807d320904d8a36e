"""Slots of a local cluster over played jobs, for tests of it."""

from pathlib import Path

from dl2_scheduler.cluster.snapshot import Allocation, Grant

HERE = Path("there")


def slot(cluster, **grants):
    """One slot with these counts; a job that is not named gets nothing."""
    cluster.snapshot()
    cluster.apply(Allocation({name: Grant(*counts) for name, counts in grants.items()}))
    return cluster.finish_slot()


def only(outcome):
    (job,) = outcome.jobs
    return job


def phases(cluster):
    return {job.name: job.phase for job in cluster.desk.jobs()}
