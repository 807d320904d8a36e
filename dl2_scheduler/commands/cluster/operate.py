"""This module is `dl2 hold`, `release`, `scale` and `stop`: what people do with jobs of a cluster."""

from typing import Annotated

import typer

from coordinator.ctl.text_columns import counted
from dl2_scheduler.cluster.jobs import MOST_TASKS
from dl2_scheduler.commands.cluster.jobs import JobName
from dl2_scheduler.commands.cluster.kube_target import Where
from elastic_ps.system.option_groups import grouped
from elastic_ps.system.terminal import say

Count = Annotated[int | None, typer.Option(metavar="N", min=1, max=MOST_TASKS, help="Left out: as they are.")]


@grouped
def hold(job: JobName, *, where: Where) -> None:
    """Leave a job's counts as they are: the policy decides about it no more; dl2 scale does."""
    with where.client() as client:
        client.hold(job)
    say(f"{job}: held; dl2 scale {job} changes its counts, dl2 release {job} gives it back to the policy")


@grouped
def release(job: JobName, *, where: Where) -> None:
    """Let the policy decide about a held job again, or let a job begin that was submitted suspended."""
    with where.client() as client:
        client.release(job)
    say(f"{job}: released")


@grouped
def scale(job: JobName, workers: Count = None, servers: Count = None, *, where: Where) -> None:
    """Give a held job other counts, within what its document allows and the nodes have."""
    with where.client() as client:
        to_workers, to_servers = client.scale(job, workers or 0, servers or 0)
    beside = f" and {counted(to_servers, 'server')}" if to_servers else ""
    say(f"{job}: it is to have {counted(to_workers, 'worker')}{beside}")


@grouped
def stop(job: JobName, *, where: Where) -> None:
    """End a job; the slots of its tasks are free in the next slot."""
    with where.client() as client:
        client.stop(job)
    say(f"{job}: it is being stopped")
