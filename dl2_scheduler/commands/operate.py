"""`dl2 hold`, `release`, `scale`, `stop`: what people do with jobs of a cluster that `dl2 serve` runs."""

from typing import Annotated

import typer

from dl2_scheduler.cluster.document import MOST_TASKS
from dl2_scheduler.commands.common import Folder
from dl2_scheduler.commands.jobs import JobName, client_of

Count = Annotated[int, typer.Option(metavar="N", min=1, max=MOST_TASKS, help="Left out: as they are.")]


def hold(job: JobName, folder: Folder = None) -> None:
    """Leave a job's counts as they are: the policy decides about it no more; dl2 scale does."""
    with client_of(folder) as client:
        client.hold(job)
    typer.echo(f"{job}: held; dl2 scale {job} changes its counts, dl2 release {job} gives it back to the policy")


def release(job: JobName, folder: Folder = None) -> None:
    """Let the policy decide about a held job again, or let a job begin that was submitted suspended."""
    with client_of(folder) as client:
        client.release(job)
    typer.echo(f"{job}: released")


def scale(job: JobName, workers: Count | None = None, servers: Count | None = None, folder: Folder = None) -> None:
    """Give a held job other counts, within what its document allows and the nodes have."""
    with client_of(folder) as client:
        to_workers, to_servers = client.scale(job, workers or 0, servers or 0)
    typer.echo(f"{job}: it is to have {to_workers} workers and {to_servers} servers")


def stop(job: JobName, folder: Folder = None) -> None:
    """End a job; the slots of its tasks are free in the next slot."""
    with client_of(folder) as client:
        client.stop(job)
    typer.echo(f"{job}: it is being stopped")
