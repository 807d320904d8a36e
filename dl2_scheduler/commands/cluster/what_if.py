"""This module is `dl2 what-if`: it shows when jobs would end under another policy, or with other nodes."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Annotated

import typer
from rich.table import Table

from dl2_scheduler.backends.local.places.nodes import virtual_nodes
from dl2_scheduler.cluster.desk import LiveJobPhase
from dl2_scheduler.cluster.document.job_document import ElasticJob, Scaling
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.forecast import ExpectedTime, Forecast
from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.cluster.snapshot import JobId
from dl2_scheduler.commands.cluster.forecast_text import clock_interval, clock_sentence
from dl2_scheduler.commands.cluster.jobs import client_of
from dl2_scheduler.commands.common import Folder, Json, default_folder, new_table, show, show_json
from dl2_scheduler.forecasts.drawn_world import HORIZON
from dl2_scheduler.forecasts.outlook import (
    IdleCluster,
    Nodes,
    Outlook,
    Supposition,
    later_by,
    with_nodes,
    without_nodes,
)
from dl2_scheduler.forecasts.records import FORECASTS_FILE, EventKind, ForecastRecords
from dl2_scheduler.live.client import ClusterClient
from dl2_scheduler.live.history import History
from dl2_scheduler.policies.learnt_names import absolute
from dl2_scheduler.world_model.bounded_policy import make_bounded_policy
from elastic_ps.system.terminal import say

_NOTABLE = 1.0  # seconds by which a job's end moves
_CHANGE = re.compile(r"([+-])([1-9]\d*x[1-9]\d*)")


def what_if(
    policy: Annotated[str | None, typer.Option(metavar="NAME", help="Of the policy that would decide.")] = None,
    nodes: Annotated[
        str | None, typer.Option(metavar="CHANGE", help="Nodes more or fewer: +4x8, -1x8 (nodes x task slots).")
    ] = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Show when jobs would end under another policy, or with other nodes, beside the present forecast."""
    if policy is None and nodes is None:
        raise BadInput("give --policy NAME, or --nodes +4x8, or both")
    supposed = Supposition(policy and absolute(policy), _changed(nodes))
    with outlook_of(folder or default_folder()) as outlook:
        before, after = outlook.compared(supposed)
    if as_json:
        show_json({"jobs": documents(before, after)})
        return
    say(summary(later_by(before, after), before, outlook.now))
    show(beside(before, after))


def would_end(document: ElasticJob, folder: Path) -> Iterator[str]:
    """Yield lines that say when a job would start and end if it were submitted now, and which others would end later.

    Args:
        document: of the job, which has been checked.
        folder: of the cluster.

    Raises:
        BadInput: nothing has been decided in that cluster yet, or nobody can know.
    """
    name = document.metadata.name
    if document.spec.suspend or document.spec.scaling is Scaling.MANUAL:
        raise BadInput(
            f"{name}: nothing is forecast of jobs that begin when their owner says so, or are scaled by hand"
        )
    job = document.job(0.0)
    with outlook_of(folder) as outlook:
        before, after = outlook.compared(Supposition(job=job))
    found, now = after.get(name), time.time()
    if found is None:
        raise BadInput(f"{name}: it would not end within the {HORIZON} slots that are looked at")
    yield f"{name}: not submitted; if it were:"
    yield f"starts   {clock_sentence(found.start, found.made, now)}"
    yield f"ends     {clock_sentence(found.end, found.made, now)}"
    moved = {other: by for other, by in later_by(before, after).items() if abs(by) > _NOTABLE}
    for other, by in sorted(moved.items(), key=lambda each: -each[1]):
        yield f"{other} ends {in_time(abs(by))} {'later' if by > 0 else 'sooner'}"
    if not moved:
        yield "no other job would end later"


@contextmanager
def outlook_of(folder: Path) -> Iterator[Outlook]:
    """Open the outlook of a cluster that `dl2 serve` runs.

    Raises:
        BadInput, NotServed: there is no such cluster, or nothing has been decided there.
    """
    with client_of(folder) as client, ExitStack() as stack:
        jobs = client.jobs()
        active = {job.name: job.submitted for job in jobs if not LiveJobPhase(job.phase).ended and not job.held}
        history = stack.enter_context(closing(History.of_folder(folder)))
        records = stack.enter_context(closing(ForecastRecords(folder / FORECASTS_FILE)))
        calibrations = {kind: records.calibration(kind) for kind in EventKind}
        yield Outlook(history, calibrations, make_bounded_policy, active, time.time(), partial(_idle, client))


def _idle(client: ClusterClient) -> IdleCluster:
    """Ask a cluster how it is. Where no job is there that its policy decides about, tasks are those of held ones."""
    load = client.top()
    nodes = tuple(
        Node(node.name, {name: max(0.0, has - node.used.get(name, 0.0)) for name, has in node.capacity.items()})
        for node in load.nodes
    )
    return IdleCluster(client.policies().deciding, nodes, load.slot_seconds)


def documents(before: Mapping[JobId, Forecast], after: Mapping[JobId, Forecast]) -> list[dict[str, object]]:
    """Return both forecasts of each job, for programs.

    Args:
        before: as it is.
        after: as it would be.
    """
    found = {"present": before, "supposed": after}
    names = dict.fromkeys([*before, *after])
    return [
        {"job": job, **{when: asdict(each[job]) if job in each else None for when, each in found.items()}}
        for job in names
    ]


def beside(before: Mapping[JobId, Forecast], after: Mapping[JobId, Forecast]) -> Table:
    """Make a table of both forecasts of each job.

    Args:
        before: as it is.
        after: as it would be.
    """
    table, now, later = (
        new_table(job=False, ends=False, would_end=False, later=True),
        time.time(),
        later_by(before, after),
    )
    for job in dict.fromkeys([*before, *after]):
        ends = [_end(each.get(job), now) for each in (before, after)]
        table.add_row(str(job), *ends, in_time(later[job]) if job in later else "-")
    return table


def summary(later: Mapping[JobId, float], before: Mapping[JobId, Forecast], now: float) -> str:
    """Return what a change does to all jobs together, in a sentence.

    Args:
        later: by how many seconds each job ends later.
        before: as it is.
        now: unix seconds.
    """
    if not before:
        return "there is no job to forecast: those that have ended or are held are not, a new one is from its slot on"
    if not later:
        return "nobody knows yet when a job ends"
    left = mean(forecast.end.at - now for job, forecast in before.items() if job in later and forecast.end is not None)
    off = mean(later.values())
    if abs(off) < _NOTABLE:
        return "jobs would end as they will now, on average"
    word = "later" if off > 0 else "sooner"
    part = f": {off / left:+.0%} of what they still take" if left > 0 else ""
    return f"jobs would end {in_time(abs(off))} {word} on average{part}"


def in_time(seconds: float) -> str:
    """Return a span of time for people, with its sign where it is negative."""
    sign, minutes = "-" if seconds < 0 else "", abs(seconds) / 60
    if minutes < 1:
        return f"{sign}{abs(seconds):.0f}s"
    return f"{sign}{minutes:.0f}m" if minutes < 100 else f"{sign}{minutes / 60:.1f}h"


def _end(forecast: Forecast | None, now: float) -> str:
    found: ExpectedTime | None = forecast.end if forecast is not None else None
    return "-" if found is None else clock_interval(found, now)


def _changed(text: str | None) -> Callable[[Nodes], Nodes]:
    """Return what makes other nodes of the present ones. Raises BadInput."""
    if text is None:
        return lambda nodes: nodes
    match = _CHANGE.fullmatch(text)
    if match is None:
        raise BadInput(f"--nodes {text}: give +NODESxSLOTS or -NODESxSLOTS, as in +4x8")
    asked = virtual_nodes(match[2], "--nodes")
    change = with_nodes if match[1] == "+" else without_nodes
    return lambda nodes: change(nodes, asked)
