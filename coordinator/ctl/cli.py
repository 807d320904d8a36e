"""`elasticctl` does what an operator does with running jobs. docs/reference/cli.md is its reference."""

import json
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from coordinator.client import ClientError, CoordinatorClient, CoordinatorFailed, CoordinatorUnreachable
from coordinator.core.plans.plan import MigrationMode
from coordinator.ctl import render
from coordinator.ctl.answering import Exit, fail, note, print_json, result, show
from coordinator.ctl.following import follow, show_lines
from coordinator.ctl.job_folders import JobNotFound, LocalJob, all_jobs, ended_job
from coordinator.ctl.job_lookup import Coordinator, JobName, Json, TokenFile, asked, asked_target, is_job
from coordinator.ctl.jsontext import to_dict
from coordinator.ctl.live_audit import prove
from coordinator.ctl.plan_wait import JobOver, RequestWithdrawn
from coordinator.ctl.watching import watch_job
from coordinator.ctl.weights_export import check_output, export_last, export_newest, export_weights
from elastic_ps.control.token import read_token
from elastic_ps.core.configuration import MOST_NODES
from elastic_ps.core.errors import CheckpointError, ConfigurationError, StorageError
from elastic_ps.system import storage
from elastic_ps.system.extras import how_to_install, missing_package
from elastic_ps.system.last_resort import one_sentence
from elastic_ps.system.option_checks import CarefulGroup, CommandLine, named
from elastic_ps.system.state_folder import jobs_folder
from elastic_ps.system.terminal import Terminal, say
from protos import elastic_pb2 as pb

_JOBS_CALL_SECONDS = 2.0
_DAY = 86_400.0
_KUBE = "--kube"


class _Errors(CarefulGroup):
    """Every error of a command becomes one line on stderr and the exit status that docs/reference/cli.md promises."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(Exit.INTERRUPTED) from None
        except JobNotFound as error:
            fail(str(error), Exit.UNKNOWN_JOB)
        except CoordinatorUnreachable as error:
            fail(str(error), Exit.UNREACHABLE)
        except (
            CoordinatorFailed,
            JobOver,
            RequestWithdrawn,
            ConfigurationError,
            CheckpointError,
            StorageError,
        ) as error:
            fail(str(error), Exit.FAILED)
        except ClientError as error:
            fail(str(error), Exit.REFUSED)


app = CommandLine(
    cls=_Errors,
    no_args_is_help=True,
    help="Operate elastic training jobs: look at them, scale them, save them, end them. Of a Kubernetes cluster: "
    "elasticctl --kube COMMAND.",
)


@app.command()
def jobs(
    every: Annotated[bool, typer.Option("--all", help="Also the jobs that have ended.")] = False, as_json: Json = False
) -> None:
    """List the jobs of this user on this machine."""
    found = [job for job in all_jobs(jobs_folder()) if every or job.ended is None]
    rows = [(job, *_look(job)) for job in found]
    if as_json:
        listed = [
            {
                "name": job.name,
                "state": state,
                "coordinator": job.coordinator,
                "host": job.host,
                "folder": str(job.folder),
                "started": job.started,
                "ended": job.ended,
                "exit_status": job.status,
                "reason": job.reason,
                "status": None if status is None else to_dict(status),
            }
            for job, state, status in rows
        ]
        print_json({"jobs": listed})
    else:
        show(render.job_table(rows))


@app.command()
def status(
    job: JobName = None, coordinator: Coordinator = None, token_file: TokenFile = None, as_json: Json = False
) -> None:
    """Show a job: roster, versions, speed, bytes per server, the plan under way."""
    with asked(job, coordinator, token_file) as client:
        reply = client.status()
    result(as_json, to_dict(reply), render.status_view(reply))


@app.command()
def scale(
    job: JobName = None,
    workers: Annotated[int | None, typer.Option(help="Workers wanted; left out: as it is.")] = None,
    servers: Annotated[int | None, typer.Option(help="Parameter servers wanted; left out: as it is.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would move.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Refuse, instead of queueing, while a plan runs.")] = False,
    mode: Annotated[MigrationMode, typer.Option(help="How blocks move.")] = MigrationMode.LIVE,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait until the plan is done.")] = False,
    coordinator: Coordinator = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Change a job's numbers of workers and servers, and wait until the plan is done."""
    if workers is None and servers is None:
        raise typer.BadParameter("say what to change: --workers N, --servers M, or both")
    for name, count in (("workers", workers), ("servers", servers)):
        if count is not None and count < 1:
            raise typer.BadParameter(f"--{name} must be at least 1, not {count}; to end a job: elasticctl stop")
        if count is not None and count > MOST_NODES:
            raise typer.BadParameter(f"--{name} {count}: a job has at most {MOST_NODES} of a role")

    wire_mode = pb.PAUSE if mode is MigrationMode.PAUSE else pb.LIVE
    with asked(job, coordinator, token_file) as client:
        reply = client.scale(workers, servers, dry_run=dry_run, queue=not no_wait, mode=wire_mode)
        if dry_run:
            result(as_json, to_dict(reply), render.dry_run(reply))
            show_lines(reply, as_json)
        else:
            follow(client, reply, detach, as_json)


@app.command()
def drain(
    names: Annotated[list[str], typer.Argument(metavar="[JOB] NODE", help="The node, as `status` names it.")],
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Refuse, instead of queueing, while a plan runs.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait until the plan is done.")] = False,
    coordinator: Coordinator = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Take one node out of a job, and wait until it is out."""
    job, node = _job_and_node("drain", names, coordinator)
    with asked(job, coordinator, token_file) as client:
        follow(client, client.drain(node, queue=not no_wait), detach, as_json)


@app.command()
def evict(
    names: Annotated[list[str], typer.Argument(metavar="[JOB] NODE", help="The node, as `status` names it.")],
    coordinator: Coordinator = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Expel a node that does not answer, at once, as if it had died; `drain` takes out one that does."""
    job, node = _job_and_node("evict", names, coordinator)
    with asked(job, coordinator, token_file) as client:
        reply = client.evict(node)
    result(as_json, to_dict(reply), Text(reply.outcome))


def _job_and_node(command: str, names: list[str], coordinator: str | None) -> tuple[str | None, str]:
    if len(names) > 2:
        raise typer.BadParameter(f"{command} takes one node at a time: [JOB] NODE, not {' '.join(names)}")
    if len(names) == 1 and coordinator is None and is_job(names[0]):
        raise typer.BadParameter(f"{names[0]} is a job; name the node: elasticctl {command} {names[0]} NODE")
    return (names[0] if len(names) == 2 else None), names[-1]


@app.command()
def plans(
    job: JobName = None, coordinator: Coordinator = None, token_file: TokenFile = None, as_json: Json = False
) -> None:
    """Show a job's plans: the time of each step, bytes moved, suspension of the workers."""
    with asked(job, coordinator, token_file) as client:
        history = client.plans()
    result(as_json, {"plans": [to_dict(plan) for plan in history]}, render.plan_table(history))


@app.command()
def cancel(
    job: JobName = None,
    plan: Annotated[
        int | None, typer.Option(min=1, help="This one, and no other; left out: the one under way now.")
    ] = None,
    coordinator: Coordinator = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Cancel the plan under way, possible until it is armed; what is queued behind it is next."""
    with asked(job, coordinator, token_file) as client:
        meant = client.status().plan.id if plan is None else plan
        if not meant:
            fail("no plan is under way", Exit.REFUSED)
        reply = client.cancel(meant)  # which may have ended by now, and the next one begun
    result(as_json, to_dict(reply), render.cancelled(reply))


@app.command()
def watch(
    job: JobName = None,
    interval: Annotated[float, typer.Option(min=0.1, max=_DAY, help="Seconds between two looks.")] = 0.5,
    coordinator: Coordinator = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Follow a job live until it ends (--json: one status a line)."""
    with asked_target(job, coordinator, token_file) as target:
        finished = watch_job(target.client, Terminal(), interval, as_json, target.over)
    if not finished:
        raise typer.Exit(Exit.FAILED)


@app.command()
def checkpoint(
    job: JobName = None,
    url: Annotated[
        str | None, typer.Option(help="Folder, by any fsspec URL; left out: the job's own.", callback=named)
    ] = None,
    coordinator: Coordinator = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Save a job while it trains, and wait until the checkpoint is whole."""
    with asked(job, coordinator, token_file) as client:
        data, reply = client.status().data, client.checkpoint(storage.from_anywhere(url) if url else "")
    result(as_json, to_dict(reply), render.checkpoint_line(reply, data))


@app.command()
def export(
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The file to write, replaced if there.")
    ],
    job: JobName = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="URL", help="Of this checkpoint, or the newest in this folder.", callback=named),
    ] = None,
    coordinator: Coordinator = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Write a job's weights under its model's parameter names as safetensors: of now, or of its last checkpoint."""
    if source is not None and (job is not None or coordinator is not None):
        raise typer.BadParameter("--from names a checkpoint; leave the job out")
    try:
        check_output(output)
    except ConfigurationError as error:
        raise typer.BadParameter(str(error)) from error
    ended = ended_job(jobs_folder(), job) if job is not None and coordinator is None else None
    if source is not None:
        exported = export_newest(source, output, _skipped)
    elif ended is not None:
        exported = export_last(ended, output, _skipped)
    else:
        with asked(job, coordinator, token_file) as client:
            url = client.checkpoint().url
        exported = export_weights(url, output)
    result(as_json, exported.to_dict(), Text(str(exported)))


def _skipped(why: str) -> None:
    note(f"passed over, for an older one: {why}")


@app.command()
def stop(
    job: JobName = None,
    now: Annotated[bool, typer.Option("--now", help="Do not wait for a checkpoint being written.")] = False,
    coordinator: Coordinator = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """End a job; nothing is saved that a checkpoint has not saved."""
    with asked(job, coordinator, token_file) as client:
        name = client.status().job
        client.stop(now=now)
    result(as_json, {"job": name, "stopping": True}, f"{name} is stopping")


@app.command()
def ledger(
    job: JobName = None, coordinator: Coordinator = None, token_file: TokenFile = None, as_json: Json = False
) -> None:
    """Print every update the servers applied, with the samples in it, one a line."""
    with asked(job, coordinator, token_file) as client:
        for entry in client.ledger():
            say(json.dumps(to_dict(entry)) if as_json else render.ledger_line(entry))


@app.command(name="audit")
def audit_command(
    job: JobName = None, coordinator: Coordinator = None, token_file: TokenFile = None, as_json: Json = False
) -> None:
    """Prove from the ledger that every sample of the epochs so far entered every parameter exactly once."""
    with asked(job, coordinator, token_file) as client:
        proof = prove(client)
    result(as_json, proof.to_dict(), Text(str(proof)))
    if not proof.found.exactly_once:
        raise typer.Exit(Exit.FAILED)


def main() -> None:
    """Run `elasticctl`. With --kube the plug-in that knows Kubernetes does the rest."""
    with one_sentence("elasticctl"):
        _program()()


def _program() -> Callable[[], None]:
    """Return what is to run."""
    if _KUBE not in sys.argv[1:]:
        return app
    sys.argv.remove(_KUBE)
    wanted = f"this needs a plug-in that is not installed: {how_to_install('kubernetes')}"
    for plug_in in entry_points(group="elasticctl.kube"):
        try:
            program: Callable[[], None] = plug_in.load()
            return program
        except ModuleNotFoundError as error:
            wanted = missing_package(error) or str(error)
    say(f"elasticctl: --kube: {wanted}", err=True)
    sys.exit(Exit.USAGE)


def _look(job: LocalJob) -> tuple[str, pb.StatusReply | None]:
    """Return a job's state in one word, and what its coordinator says where one answers."""
    if job.ended is not None:
        return job.how_it_ended, None
    try:
        with CoordinatorClient(job.coordinator, read_token(job.token_file), _JOBS_CALL_SECONDS) as client:
            reply = client.status()
    except (ClientError, ConfigurationError):
        # A launcher starts a dead coordinator again; without one nobody does.
        gone = "elsewhere" if job.elsewhere else "lost"
        return ("away" if job.processes_alive else gone), None
    return reply.phase, reply
