"""`dl2 submit`, `jobs`, `status`, `why`, `stop`: what people ask of a cluster that `dl2 serve` runs."""

import time
from pathlib import Path
from typing import Annotated

import typer
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.commands.common import Folder, Json, default_folder, new_table, show, show_json
from dl2_scheduler.live.client import ClusterClient
from protos import cluster_pb2 as pb

JobName = Annotated[str, typer.Argument(metavar="JOB", help="Its name.")]


def submit(
    document: Annotated[Path, typer.Argument(metavar="FILE", help="An ElasticJob, as YAML.")], folder: Folder = None
) -> None:
    """Submit a job: it gets its first tasks when the next slot begins."""
    try:
        text = document.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {document}: {error}") from error
    with _client(folder) as client:
        try:
            name = client.submit(text, Path.cwd())
        except BadInput as error:
            raise BadInput(f"{document}: {error}") from error
    typer.echo(f"{name}: submitted; dl2 status {name} shows it")


def jobs(folder: Folder = None, as_json: Json = False) -> None:
    """List the jobs of the cluster, the last of every name."""
    with _client(folder) as client:
        found = client.jobs()
    if as_json:
        show_json({"jobs": [_dictionary(job) for job in found]})
        return
    table = new_table(
        name=False, type=False, phase=False, workers=True, servers=True, epoch=True, speed=True, age=True, reason=False
    )
    for job in found:
        epoch, speed = f"{job.epochs_done:.1f}/{job.epochs:g}", _speed(job)
        counts = (str(job.workers), str(job.servers))
        table.add_row(job.name, job.model, job.phase, *counts, epoch, speed, _age(job), job.reason)
    show(table)


def status(job: JobName, folder: Folder = None, as_json: Json = False) -> None:
    """Show a job."""
    with _client(folder) as client:
        found = client.status(job)
    if as_json:
        show_json(_dictionary(found))
        return
    lines = {
        "job": found.name,
        "type": found.model,
        "phase": f"{found.phase}: {found.reason}" if found.reason else found.phase,
        "workers": f"{found.workers}, at most {found.max_workers}",
        "servers": f"{found.servers}, at most {found.max_servers}",
        "epochs": f"{found.epochs_done:.2f} of {found.epochs:g}",
        "speed": f"{_speed(found)} samples/s",
        "age": _age(found),
        "log": found.log or "-",
    }
    for name, value in lines.items():
        typer.echo(f"{name:<9}{value}")


def why(
    job: JobName,
    last: Annotated[int, typer.Option(min=1, max=100_000, help="Decisions to show.")] = 20,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Show what was decided about a job, slot by slot, why, and what came of it."""
    with _client(folder) as client:
        found = client.why(job, last)
    if as_json:
        show_json({"decisions": [_dictionary(decision) for decision in found]})
        return
    table = new_table(slot=True, policy=False, before=True, granted=True, had=True, epochs=True, why=False)
    for decision in found:
        happened = decision.happened if decision.HasField("happened") else None
        had = _counts(happened.workers, happened.servers) if happened else "-"
        trained = f"{happened.epochs:.2f}" if happened else "-"
        reason = "; ".join(filter(None, (decision.reason, happened.note if happened else "not ended")))
        before = _counts(decision.workers_before, decision.servers_before)
        granted = _counts(decision.workers, decision.servers)
        table.add_row(str(decision.slot), decision.policy, before, granted, had, trained, reason)
    show(table)
    typer.echo("counts are workers+servers: before the slot, as granted, and as the job had them at its end")


def stop(job: JobName, folder: Folder = None) -> None:
    """End a job; the slots of its tasks are free in the next slot."""
    with _client(folder) as client:
        client.stop(job)
    typer.echo(f"{job}: it is being stopped")


def _client(folder: Path | None) -> ClusterClient:
    return ClusterClient(folder or default_folder())


def _dictionary(message: Message) -> dict[str, object]:
    found: dict[str, object] = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return found


def _counts(workers: int, servers: int) -> str:
    return f"{workers}+{servers}"


def _speed(job: pb.JobStatus) -> str:
    return f"{job.samples_per_second:,.0f}" if job.samples_per_second else "-"


def _age(job: pb.JobStatus) -> str:
    """From submission to now, or to the end."""
    minutes, seconds = divmod(int((job.ended or time.time()) - job.submitted), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{seconds:02}s"
