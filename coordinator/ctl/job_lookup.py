"""This module finds the job that a command of `elasticctl` is about: by name, or by its coordinator's address."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from coordinator.client import CoordinatorClient
from coordinator.ctl.job_folders import JobNotFound, LocalJob, all_jobs, find_job, jobs_folder
from elastic_ps.control.token import read_token
from elastic_ps.system.http_pages import MOST_PORT

JobName = Annotated[str | None, typer.Argument(metavar="JOB", help="Name of the job; may be left out when one runs.")]
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


def resolve(name: str | None, coordinator: str | None, token_file: Path | None) -> Target:
    """Find the job that the arguments mean.

    Args:
        name: of the job; None: not given.
        coordinator: its host:port; None: not given.
        token_file: that holds the job token; None: not given.

    Raises:
        typer.BadParameter: arguments that do not go together.
        UnknownJob: no such job.
        ConfigurationError: its token cannot be read.
    """
    if coordinator is None:
        if token_file is not None:
            raise typer.BadParameter("--token-file goes with --coordinator; a job that is named has its own")
        return _named(name)
    if name is not None:
        raise typer.BadParameter(f"name the job ({name}) or give --coordinator, not both")
    if token_file is None:
        raise typer.BadParameter("--coordinator needs --token-file: the file `token` in the job's folder")
    host, _, port = coordinator.rpartition(":")
    if not host or not re.fullmatch("0*[0-9]{1,5}", port) or not 0 < int(port) <= MOST_PORT:
        raise typer.BadParameter(f"--coordinator is HOST:PORT, PORT from 1 to {MOST_PORT}, not {coordinator!r}")
    return Target(CoordinatorClient(coordinator, read_token(token_file)))


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
