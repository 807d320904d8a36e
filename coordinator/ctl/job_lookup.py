"""This module finds the job that a command of `elasticctl` is about: by name, or by its coordinator's address."""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from coordinator.client import AccessDenied, CoordinatorClient, CoordinatorUnreachable
from coordinator.ctl.job_folders import JobNotFound, LocalJob, all_jobs, find_job, read_job
from elastic_ps.control.channels import is_address
from elastic_ps.control.token import read_token
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.system.option_checks import named
from elastic_ps.system.state_folder import jobs_folder

JobName = Annotated[
    str | None,
    typer.Argument(metavar="JOB", help="Name of the job; may be left out when one runs.", callback=named),
]
Coordinator = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Ask this coordinator instead of naming a job.")
]
TokenFile = Annotated[Path | None, typer.Option(metavar="FILE", help="The job token, with --coordinator.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


@dataclass(frozen=True)
class Target:
    """A target is a job's coordinator and, where it was named, the job's folder."""

    client: CoordinatorClient
    job: LocalJob | None = None

    def now(self) -> LocalJob | None:
        """Return what the job's folder says now; None: no folder is known."""
        return self.job and (read_job(self.job.folder) or self.job)

    def over(self) -> LocalJob | None:
        """Return what the job's folder says where it says that the job is over; its coordinator is gone then."""
        job = self.now()
        return job if job is not None and job.status is not None else None


def resolve(name: str | None, coordinator: str | None, token_file: Path | None) -> Target:
    """Find the job that the arguments mean.

    Args:
        name: of the job; None: not given.
        coordinator: its host:port; None: not given.
        token_file: that holds the job token; None: not given.

    Raises:
        typer.BadParameter: arguments that do not go together.
        JobNotFound: no such job.
        ConfigurationError: the token of a named job cannot be read.
    """
    if coordinator is None:
        if token_file is not None:
            raise typer.BadParameter("--token-file goes with --coordinator; a job that is named has its own")
        return _named(name)
    if name is not None:
        raise typer.BadParameter(f"name the job ({name}) or give --coordinator, not both")
    if token_file is None:
        raise typer.BadParameter("--coordinator needs --token-file: the file `token` in the job's folder")
    if not is_address(coordinator):
        raise typer.BadParameter(
            f"--coordinator is HOST:PORT, PORT from 1 to 65535, not {coordinator!r}; an IPv6 address as [::1]:PORT"
        )
    try:
        token = read_token(token_file)
    except ConfigurationError as error:
        raise typer.BadParameter(f"--token-file {token_file}: {error}") from error
    return Target(CoordinatorClient(coordinator, token))


@contextmanager
def asked(name: str | None, coordinator: str | None, token_file: Path | None) -> Iterator[CoordinatorClient]:
    """Ask the coordinator of the job that the arguments mean, where its folder does not matter.

    Args:
        name: see `resolve`.
        coordinator: likewise.
        token_file: likewise.

    Raises:
        CoordinatorUnreachable: see `asked_target`.
    """
    with asked_target(name, coordinator, token_file) as target:
        yield target.client


@contextmanager
def asked_target(name: str | None, coordinator: str | None, token_file: Path | None) -> Iterator[Target]:
    """Ask the coordinator of the job that the arguments mean.

    Args:
        name: see `resolve`.
        coordinator: likewise.
        token_file: likewise.

    Raises:
        CoordinatorUnreachable: it does not answer, or another one has its port by now; the message says what is known
            of its job, and what to do.
    """
    target = resolve(name, coordinator, token_file)
    with target.client:
        try:
            yield target
        except (CoordinatorUnreachable, AccessDenied) as error:
            job = target.now()
            if isinstance(error, AccessDenied) and (job is None or job.processes_alive):
                raise
            if job is None:
                raise CoordinatorUnreachable(f"{error}: is the job running, and can this machine reach it?") from error
            raise CoordinatorUnreachable(f"{_known(job)} ({error})") from error


def how_over(job: LocalJob) -> str:
    """Return how a job ended that is over, for people."""
    why = f", {job.reason}" if job.reason else ""
    return f"job {job.name} is over: {job.how_it_ended} with status {job.status}{why}"


def _known(job: LocalJob) -> str:
    """Return what is known of a job whose coordinator does not answer, and what to do, for people."""
    logs = f"see {job.folder / 'logs'}"
    if job.status is not None:
        return f"{how_over(job)}; {logs}"
    if job.launcher_alive:
        starts = f"its launcher (process {job.pid}) runs, and starts it again"
        return f"the coordinator of job {job.name} is away; {starts}: try again in a moment, and {logs}"
    if job.processes_alive:
        runs = f"the coordinator of job {job.name} (process {job.coordinator_pid}) runs and does not answer"
        return f"{runs}, and its launcher is gone: nobody starts it again; {logs}"
    if job.elsewhere:
        return f"job {job.name} runs on {job.elsewhere}, or ran there: ask there"
    again = f"elasticrun --name {job.name}"
    if any(job.checkpoints.glob("version-*")):
        again += f" --restore {shlex.quote(str(job.checkpoints))}"
    ended = "its launcher and its coordinator have ended without a word, as where a machine goes down"
    return f"job {job.name} is lost: {ended}; {logs}, and start it again: {again} ..."


def is_job(name: str) -> bool:
    """Return whether a job of this user on this machine has a name and has not ended."""
    return any(job.name == name and job.ended is None for job in all_jobs(jobs_folder()))


def _named(name: str | None) -> Target:
    """Return a job of this user on this machine; else the one whose environment this is, as in a coordinator's pod."""
    around = _around()
    if around is not None and name is None:
        return around
    try:
        job = find_job(jobs_folder(), name)
    except JobNotFound:
        if around is None or around.client.status().job != name:
            raise
        return around
    return Target(CoordinatorClient(job.coordinator, read_token(job.token_file)), job)


def _around() -> Target | None:
    """Return the job whose environment this is; None: it is no job's."""
    address, token_file = os.environ.get("ELASTIC_COORDINATOR"), os.environ.get("ELASTIC_TOKEN_FILE")
    return Target(CoordinatorClient(address, read_token(Path(token_file)))) if address and token_file else None
