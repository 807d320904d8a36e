"""This module is the command `elasticrun`. Its options stand in `options`; `checks` refuses what cannot be."""

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

import typer

from elastic_ps.core.configuration import Role
from elastic_ps.core.errors import EXIT_LATER, ConfigurationError, CoordinatorLost, NotNow
from elastic_ps.launch import checks
from elastic_ps.launch.checkpoint_lock import sole_saver
from elastic_ps.launch.commands import JobCommands, JoinSettings, NodeCommands, ProcessCommands
from elastic_ps.launch.job_agent import JobAgent
from elastic_ps.launch.job_folder import JobFolder, default_name
from elastic_ps.launch.member_agent import MemberAgent, MemberSettings
from elastic_ps.launch.options import (
    JobOptions,
    JobSettings,
    NodeOptions,
    NodesOptions,
    ProgramOptions,
    emptied,
    misplaced,
    serverless,
)
from elastic_ps.launch.outcome import LauncherOutcome
from elastic_ps.launch.processes.output import MergedStream
from elastic_ps.system.last_resort import one_sentence
from elastic_ps.system.option_checks import CommandLine
from elastic_ps.system.option_groups import grouped
from elastic_ps.system.process.signals import signals_to
from elastic_ps.system.state_folder import jobs_folder
from elastic_ps.system.storage import from_anywhere, new_identity
from elastic_ps.system.terminal import say

_USAGE = 2

app = CommandLine()


def main() -> None:
    """Run `elasticrun`."""
    with one_sentence("elasticrun"):
        app(prog_name="elasticrun")


@app.command(
    help="Train SCRIPT as an elastic job on this machine, or with --role join one node to a running job.",
    context_settings={"allow_interspersed_args": False},
    epilog="Exit status: 0 finished or drained, 1 failed, 2 wrong usage, 69 not now, 128 + n ended by signal n.",
)
@grouped
def elasticrun(
    context: typer.Context, program: ProgramOptions, job: JobOptions, node: NodeOptions, nodes: NodesOptions
) -> None:
    """Run what the command line says.

    Args:
        context: of the command line.
        program: what is trained.
        job: of a whole job.
        node: of one node that joins a job.
        nodes: of every node.
    """
    _refuse_if(
        misplaced(context, node.role)
        or emptied(context, job)
        or serverless(context, nodes, node.role)
        or checks.script_problem(program.script, program.module, node.role)
        or checks.hidden_problem(program.script, program.module)
        or checks.modules_problem(nodes.modules)
        or checks.seconds_problem(
            join_timeout=nodes.join_timeout,
            checkpoint_interval=job.checkpoint_interval,
            lease=job.lease,
            grace=nodes.grace or None,
        )
    )
    try:
        status = _train(program, job, nodes) if node.role is None else _join(node.role, program, node, nodes)
    except NotNow as error:
        with suppress(OSError):  # its output may be on the disk that is full
            say(f"elasticrun: {error}", err=True)
        status = EXIT_LATER
    raise typer.Exit(status)


def _join(role: Role, program: ProgramOptions, node: NodeOptions, nodes: NodesOptions) -> int:
    assert node.token_file is not None, "checked as missing above"
    listens = role is Role.SERVER or nodes.all_reduces
    _refuse_if(
        checks.address_problem(node.coordinator)
        or checks.token_problem(node.token_file)
        or checks.host_problem(nodes.host, listens)
        or (checks.remote_problem(nodes.host, node.coordinator) if listens else None)
    )
    join = JoinSettings(node.coordinator, node.token_file, nodes.host, nodes.wire, nodes.mode)
    settings = MemberSettings(role, join, nodes.join_timeout, nodes.grace, node.nonce_prefix)
    return run_member(settings, partial(NodeCommands(program.of_workers(), nodes.modules).node, role, join))


def _train(program: ProgramOptions, job: JobOptions, nodes: NodesOptions) -> int:
    script = program.of_workers()
    assert script is not None, "checked as missing above"
    _refuse_if(
        checks.block_problem(job.block_bytes)
        or checks.host_problem(nodes.host, listens=True)
        or checks.checkpoint_problem(job.checkpoint)
        or checks.restore_problem(job.restore)
        or checks.identity_problem(job.identity)
        or checks.wrap_problem("--wrap-worker", job.wrap_worker)
        or checks.wrap_problem("--wrap-server", job.wrap_server)
    )
    if told := checks.only_here(nodes.host):
        say(f"elasticrun: {told}, where nodes of others are to join this job", err=True)
    named = replace(job, name=job.name or default_name(program.script), identity=job.identity or new_identity())
    # Now, as this folder may be gone when another coordinator is started.
    named = replace(named, checkpoint=from_anywhere(job.checkpoint), restore=from_anywhere(job.restore))
    if nodes.all_reduces:
        named = replace(named, servers=0)
    settings = JobSettings(script, named, nodes)
    try:
        with sole_saver(job.checkpoint, job.identity):
            return run_job(settings, JobCommands, MergedStream(sys.stdout), jobs_folder()).status
    except ConfigurationError as error:
        _refuse(str(error))


def run_job(
    settings: JobSettings, commands: Callable[[JobSettings], ProcessCommands], merged: MergedStream, root: Path
) -> LauncherOutcome:
    """Run a whole job from the main thread, which takes this process's signals.

    Args:
        settings: the job.
        commands: returns what its processes are.
        merged: takes all output.
        root: folder of all jobs.

    Raises:
        ConfigurationError: a job of that name runs, or the name is none.
        NotNow: it can have no folder at present.
    """
    folder = JobFolder(settings.job.name, root, settings.job.identity)
    try:
        settings = replace(settings, job=replace(settings.job, restore=folder.moved(settings.job.restore)))
        agent = JobAgent(settings, folder, commands(settings), merged)
        with signals_to(agent.signalled):
            return agent.run()
    finally:
        folder.release()


def run_member(settings: MemberSettings, command: Callable[[str], list[str]]) -> int:
    """Run one node of a job from the main thread, which takes this process's signals; return the exit status.

    Args:
        settings: the node.
        command: argv of the process that has the given nonce.
    """
    try:
        agent = MemberAgent(settings, command)
        with signals_to(agent.signalled):
            return agent.run()
    except (CoordinatorLost, ConfigurationError) as error:
        say(f"elasticrun: {error}", err=True)
        return 1


def _refuse_if(problem: str | None) -> None:
    if problem is not None:
        _refuse(problem)


def _refuse(problem: str) -> NoReturn:
    say(f"elasticrun: {problem}", err=True)
    raise typer.Exit(_USAGE)
