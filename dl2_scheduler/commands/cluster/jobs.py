"""This module is `dl2 jobs`, `status` and `why`: they show jobs of a cluster, and what was decided about them."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from google.protobuf.message import Message

from coordinator.ctl.jsontext import to_dict
from dl2_scheduler.commands.cluster.forecast_text import clock_interval, clock_sentence, end_of, start_of
from dl2_scheduler.commands.cluster.kube_target import Where
from dl2_scheduler.commands.common import Json, default_folder, new_table, show, show_json
from dl2_scheduler.live.client import ClusterClient
from elastic_ps.system.option_checks import named
from elastic_ps.system.option_groups import grouped
from elastic_ps.system.terminal import say
from protos import cluster_pb2 as pb

JobName = Annotated[str, typer.Argument(metavar="JOB", help="Its name.", callback=named)]

_LONGEST_TYPE = 40
"""Characters of a job's type that a row of the table shows; `dl2 status` and `--json` show all."""


@grouped
def jobs(*, where: Where, as_json: Json = False) -> None:
    """List the jobs of the cluster, the last of every name."""
    with where.client() as client:
        found = client.jobs()
    if as_json:
        show_json({"jobs": [dictionary(job) for job in found]})
        return
    numbers = {"workers": True, "servers": True, "epoch": True, "speed": True, "age": True}
    table = new_table(name=False, type=False, phase=False, **numbers, starts=False, ends=False, reason=False)
    now = time.time()
    for job in found:
        epoch, speed = f"{job.epochs_done:.1f}{_of('/', job)}", _speed(job)
        counts = (str(job.workers), str(job.servers) if job.max_servers else "-")
        expected = [clock_interval(of(job.forecast), now) for of in (start_of, end_of)]
        table.add_row(job.name, _short(job.model), _phase(job), *counts, epoch, speed, _age(job), *expected, job.reason)
    show(table)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_TYPE else f"{text[: _LONGEST_TYPE - 3]}..."


@grouped
def status(job: JobName, *, where: Where, as_json: Json = False) -> None:
    """Show a job."""
    with where.client() as client:
        found = client.status(job)
    if as_json:
        show_json(dictionary(found))
        return
    lines = {
        "job": found.name,
        "type": found.model,
        "phase": ": ".join(filter(None, (_phase(found), found.reason))),
        "workers": f"{found.workers}, from {found.min_workers} to {found.max_workers}",
        "servers": _servers(found),
        "epochs": f"{found.epochs_done:.2f}{_of(' of ', found)}",
        "speed": f"{_speed(found)} samples/s",
        "age": _age(found),
        "starts": clock_sentence(start_of(found.forecast), found.forecast.made, time.time()),
        "ends": clock_sentence(end_of(found.forecast), found.forecast.made, time.time()),
        "log": found.log or "-",
    }
    for name, value in lines.items():
        say(f"{name:<9}{value}")


@grouped
def why(
    job: JobName,
    last: Annotated[int, typer.Option(min=1, max=100_000, help="Decisions to show.")] = 20,
    shadow: Annotated[bool, typer.Option("--shadow", help="Also what a policy beside would have granted.")] = False,
    *,
    where: Where,
    as_json: Json = False,
) -> None:
    """Show what was decided about a job, slot by slot, why, and what came of it."""
    with where.client() as client:
        found, ended = client.why(job, last), bool(client.status(job).ended)
    now = found[-1].slot if found and not ended else None
    if as_json:
        show_json({"decisions": [dictionary(decision) for decision in found]})
        return
    if not found:
        say(f"nothing has been decided about {job} yet: dl2 status {job} says how it is")
        return
    beside = {"shadow": False, "would_grant": True} if shadow else {}
    columns = {"granted": True, **beside, "had": True, "epochs": True, "why": False}
    table = new_table(slot=True, policy=False, before=True, **columns)
    for decision in found:
        happened = decision.happened if decision.HasField("happened") else None
        had = _counts(happened.workers, happened.servers) if happened else "-"
        trained = f"{happened.epochs:.2f}" if happened else "-"
        open_end = "not ended" if decision.under_way or decision.slot == now else "cut short: dl2 serve ended in it"
        reason = "; ".join(filter(None, (decision.reason, happened.note if happened else open_end)))
        before = _counts(decision.workers_before, decision.servers_before)
        granted = _counts(decision.workers, decision.servers)
        other = [decision.shadow.policy or "-", _shadowed(decision)] if shadow else []
        table.add_row(str(decision.slot), decision.policy, before, granted, *other, had, trained, reason)
    show(table)
    say("counts are workers+servers: before the slot, as granted, and as the job had them at its end")


def client_of(folder: Path | None) -> ClusterClient:
    """Return a client of the cluster that a command asks."""
    return ClusterClient(folder or default_folder())


def dictionary(message: Message) -> dict[str, object]:
    """Return every field of a message, for programs, but for messages in it that are absent."""
    found: dict[str, object] = _without_absent(to_dict(message))
    return found


def _without_absent(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_absent(each) for name, each in value.items() if each is not None}
    return [_without_absent(each) for each in value] if isinstance(value, list) else value


def _phase(job: pb.JobStatus) -> str:
    return f"{job.phase}, held" if job.held else job.phase


def _servers(job: pb.JobStatus) -> str:
    if not job.max_servers:
        return "none: its workers all-reduce"
    return f"{job.servers}, from {job.min_servers} to {job.max_servers}"


def _shadowed(decision: pb.Decision) -> str:
    shadow = decision.shadow
    return _counts(shadow.workers, shadow.servers) if decision.HasField("shadow") else "-"


def _counts(workers: int, servers: int) -> str:
    return f"{workers}+{servers}"


def _of(word: str, job: pb.JobStatus) -> str:
    """Return all its epochs, where its document tells them."""
    return f"{word}{job.epochs:g}" if job.epochs else ""


def _speed(job: pb.JobStatus) -> str:
    return f"{job.samples_per_second:,.0f}" if job.samples_per_second else "-"


def _age(job: pb.JobStatus) -> str:
    """Return the time from submission to now, or to the end; a clock may have been set back since."""
    minutes, seconds = divmod(int(max(0.0, (job.ended or time.time()) - job.submitted)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{seconds:02}s"
