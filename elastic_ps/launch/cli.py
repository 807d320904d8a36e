"""The command `elasticrun`: its options. What of them cannot be: `checks`."""

import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from elastic_ps.core.configuration import MOST_NODES, Role
from elastic_ps.core.data import MOST_SEED
from elastic_ps.core.errors import ConfigurationError, CoordinatorLost
from elastic_ps.core.model import ALIGNMENT
from elastic_ps.launch import checks
from elastic_ps.launch.agent import Agent, Outcome
from elastic_ps.launch.commands import Commands, JobCommands, JobSettings, NodeCommands, Place, Script
from elastic_ps.launch.folder import JobFolder, default_name, jobs_folder
from elastic_ps.launch.member import MemberAgent, MemberSettings
from elastic_ps.launch.output import MergedStream
from elastic_ps.transport.choice import TransportName, TransportSettings
from elastic_ps.transport.striped import MOST_SOCKETS

_USAGE = 2
_MOST_BLOCK_BYTES = 1 << 40
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_OF_A_NODE = ("coordinator", "token_file")
_AT_WILL_OF_A_NODE = ("nonce_prefix",)
_OF_A_JOB = (
    "workers",
    "servers",
    "name",
    "max_restarts",
    "seed",
    "block_bytes",
    "migration",
    "checkpoint",
    "checkpoint_interval",
    "restore",
    "lease",
    "wrap_worker",
    "wrap_server",
)

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def main() -> None:
    """Entry point of `elasticrun`."""
    app(prog_name="elasticrun")


class Migration(StrEnum):
    """How blocks move to other servers."""

    LIVE = "live"
    PAUSE = "pause"


@app.command(
    context_settings={"allow_interspersed_args": False},
    epilog="Exit status: 0 finished or drained, 1 failed, 2 wrong usage, 128 + n ended by signal n.",
)
def elasticrun(
    context: typer.Context,
    script: Annotated[
        str, typer.Argument(metavar="SCRIPT", help="Training script, or with -m a module.", show_default=False)
    ] = "",
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENTS", help="Passed to the script untouched.")
    ] = None,
    module: Annotated[bool, typer.Option("-m", help="Run SCRIPT as `python -m` does.")] = False,
    workers: Annotated[int, typer.Option(metavar="N", min=1, max=MOST_NODES, help="Workers at the start.")] = 1,
    servers: Annotated[int, typer.Option(metavar="N", min=1, max=MOST_NODES, help="Servers at the start.")] = 1,
    name: Annotated[str, typer.Option(metavar="NAME", help="Of the job; by default made from the script's.")] = "",
    max_restarts: Annotated[
        int, typer.Option(metavar="N", min=0, help="Dead processes that are replaced, in all.")
    ] = 3,
    seed: Annotated[
        int | None, typer.Option(metavar="N", min=0, max=MOST_SEED, help="Of the order of the samples.")
    ] = None,
    block_bytes: Annotated[
        int | None, typer.Option(metavar="N", min=ALIGNMENT, max=_MOST_BLOCK_BYTES, help="Largest block of a tensor.")
    ] = None,
    migration: Annotated[Migration | None, typer.Option(help="How blocks move to other servers.")] = None,
    checkpoint: Annotated[
        str, typer.Option(metavar="URL", help="Folder of checkpoints, any fsspec URL [the job's folder].")
    ] = "",
    checkpoint_interval: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.1, help="Seconds between checkpoints.")
    ] = None,
    restore: Annotated[str, typer.Option(metavar="URL", help="Start from this checkpoint.")] = "",
    wrap_worker: Annotated[
        str, typer.Option(metavar="COMMAND", help="Program that runs each worker, as in 'nice -n 5'.")
    ] = "",
    wrap_server: Annotated[
        str, typer.Option(metavar="COMMAND", help="Program that runs each server, as in 'nice -n 5'.")
    ] = "",
    role: Annotated[Role | None, typer.Option(help="Join one node to a running job.")] = None,
    coordinator: Annotated[str, typer.Option(metavar="HOST:PORT", help="Of the job that --role joins.")] = "",
    token_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Of the job that --role joins.")] = None,
    nonce_prefix: Annotated[
        str, typer.Option(metavar="PREFIX", help="Names --role's processes PREFIX.1, PREFIX.2 [random].")
    ] = "",
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address that other nodes reach this machine at.")
    ] = "127.0.0.1",
    transport: Annotated[
        TransportName, typer.Option(help="Of tensors; auto: shared memory on one host, else TCP.")
    ] = TransportName.AUTO,
    tcp_sockets: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=MOST_SOCKETS, help="Sockets of each TCP connection, each with a thread."),
    ] = 1,
    optimizer_module: Annotated[
        list[str] | None, typer.Option(metavar="MODULE", help="Module with update rules for servers.")
    ] = None,
    join_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Seconds to wait for nodes, or for the job.")
    ] = 60.0,
    lease: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=1.0, help="Seconds that a node may be silent [10].")
    ] = None,
    grace: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, help="Seconds that processes get to end in order.")
    ] = 30.0,
) -> None:
    """Train SCRIPT as an elastic job on this machine, or with --role join one node to a running job."""
    modules = tuple(optimizer_module or ())
    _refuse_if(
        _misplaced(context, role)
        or checks.script_problem(script, module, role)
        or checks.modules_problem(modules)
        or checks.seconds_problem(join_timeout=join_timeout, checkpoint_interval=checkpoint_interval, lease=lease)
    )
    program = Script(script, tuple(arguments or ()), module) if script else None
    wire = TransportSettings(transport, tcp_sockets)
    if role is not None:
        assert token_file is not None, "checked as missing above"
        _refuse_if(_node_problem(role, coordinator, token_file, host))
        member = MemberSettings(role, Place(coordinator, token_file, host, wire), join_timeout, grace, nonce_prefix)
        raise typer.Exit(run_member(member, partial(NodeCommands(program, modules).node, role, member.place)))
    assert program is not None, "checked as missing above"
    _refuse_if(
        _job_problem(host, block_bytes, checkpoint, restore)
        or checks.wrap_problem("--wrap-worker", wrap_worker)
        or checks.wrap_problem("--wrap-server", wrap_server)
    )
    job = JobSettings(
        name=name or default_name(script),
        script=program,
        workers=workers,
        servers=servers,
        host=host,
        max_restarts=max_restarts,
        grace=grace,
        checkpoint=checkpoint,
        coordinator_options=_coordinator_options(
            seed=seed,
            block_bytes=block_bytes,
            migration=migration,
            checkpoint_interval=checkpoint_interval,
            restore=restore or None,
            join_timeout=join_timeout,
            lease=lease,
        ),
        optimizer_modules=modules,
        transport=wire,
        wraps={
            role: tuple(shlex.split(command))
            for role, command in ((Role.WORKER, wrap_worker), (Role.SERVER, wrap_server))
            if command
        },
    )
    raise typer.Exit(_start(job))


def _coordinator_options(**values: object) -> tuple[str, ...]:
    """Those that were given, as the coordinator's command line has them."""
    given = {f"--{name.replace('_', '-')}": str(value) for name, value in values.items() if value is not None}
    return tuple(text for option in given.items() for text in option)


def _start(settings: JobSettings) -> int:
    try:
        return run_job(settings, JobCommands(settings), MergedStream(sys.stdout), jobs_folder()).status
    except ConfigurationError as error:
        _refuse(str(error))


def run_job(settings: JobSettings, commands: Commands, merged: MergedStream, root: Path) -> Outcome:
    """Run a whole job from the main thread, with this process's signals.

    Args:
        settings: the job.
        commands: what its processes are.
        merged: takes all output.
        root: folder of all jobs.

    Raises:
        ConfigurationError: a job of that name runs, or the name is none.
    """
    folder = JobFolder(settings.name, root)
    try:
        agent = Agent(settings, folder, commands, merged)
        with signals_to(agent.signalled):
            return agent.run()
    finally:
        folder.release()


def run_member(settings: MemberSettings, command: Callable[[str], list[str]]) -> int:
    """Run one node of a job from the main thread, with this process's signals; returns the exit status.

    Args:
        settings: the node.
        command: argv of the process that has the given nonce.
    """
    try:
        agent = MemberAgent(settings, command)
        with signals_to(agent.signalled):
            return agent.run()
    except (CoordinatorLost, ConfigurationError) as error:
        typer.echo(f"elasticrun: {error}", err=True)
        return 1


@contextmanager
def signals_to(handler: Callable[[int], None]) -> Iterator[None]:
    """Hand SIGINT, SIGTERM and SIGHUP to `handler` meanwhile."""

    def handle(number: int, _frame: FrameType | None) -> None:
        handler(number)

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _misplaced(context: typer.Context, role: Role | None) -> str | None:
    """What was given, or is missing, with or without --role."""
    of_a_node = (*_OF_A_NODE, *_AT_WILL_OF_A_NODE)
    names = (*_OF_A_JOB, *of_a_node)
    sources = {name: context.get_parameter_source(name) for name in names}
    given = {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}
    wrong = sorted(given & set(of_a_node if role is None else _OF_A_JOB))
    if wrong:
        option = f"--{wrong[0].replace('_', '-')}"
        where = "one node that --role joins to a job" if role is None else "a whole job, which --role does not start"
        return f"{option} is for {where}"
    missing = sorted(set(_OF_A_NODE) - given) if role is not None else []
    return f"--role needs --{missing[0].replace('_', '-')}, of the job to join" if missing else None


def _node_problem(role: Role, coordinator: str, token_file: Path, host: str) -> str | None:
    return (
        checks.address_problem(coordinator)
        or checks.token_problem(token_file)
        or checks.host_problem(host, listens=role is Role.SERVER)
    )


def _job_problem(host: str, block_bytes: int | None, checkpoint: str, restore: str) -> str | None:
    return (
        checks.block_problem(block_bytes)
        or checks.host_problem(host, listens=True)
        or checks.checkpoint_problem(checkpoint)
        or checks.restore_problem(restore)
    )


def _refuse_if(problem: str | None) -> None:
    if problem is not None:
        _refuse(problem)


def _refuse(problem: str) -> NoReturn:
    typer.echo(f"elasticrun: {problem}", err=True)
    raise typer.Exit(_USAGE)
