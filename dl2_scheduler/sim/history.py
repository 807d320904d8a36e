"""This module reads recorded decisions of a scheduler, one JSON object a slot: what it saw, and what it gave.

slot            number
slot_seconds    length
nodes           [{"count": of equal nodes, "capacity": of each}, ...]
jobs            by arrival: what a trace has of each, epochs as far as the scheduler knew; epochs_done, slots_run,
                workers_before, servers_before (of the slot before); workers, servers: what it was given
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.jobs import MOST_TASKS, Job, Node
from dl2_scheduler.cluster.ranges import LATEST, MOST_EPOCHS, check_range
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobState, Snapshot
from dl2_scheduler.sim.jsonlines import Reader, amounts, number, read_fields, read_objects, whole_number
from dl2_scheduler.sim.trace import JOB_FIELDS, MOST_NODES, UNLESS_USUAL, but_the_usual, check_capacity, write_whole

Decision = tuple[Snapshot, tuple[Grant, ...]]
"""A slot, and what each of its jobs was given."""

_MOST_BYTES = 512 << 20  # each slot has all its jobs
_STATE_FIELDS: Mapping[str, Reader] = {
    "epochs_done": number,
    "slots_run": whole_number,
    "workers_before": whole_number,
    "servers_before": whole_number,
}
_GRANT_FIELDS: Mapping[str, Reader] = {"workers": whole_number, "servers": whole_number}
_OF_JOB = {name: reader for name, reader in JOB_FIELDS.items() if name != "epochs_estimate"}


class Recording:
    """A policy whose decisions are kept.

    Args:
        policy: decides.

    Attributes:
        decisions: so far; slots without jobs are left out.
    """

    def __init__(self, policy: AllocationPolicy):
        self.decisions: list[Decision] = []
        self._policy = policy

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """See `AllocationPolicy.allocate`."""
        found = self._policy.allocate(snapshot, room)
        if snapshot.jobs:
            self.decisions.append((snapshot, tuple(found.of(state.job.id) for state in snapshot.jobs)))
        return found


def write_history(path: Path, decisions: Iterable[Decision]) -> None:
    """Write decisions, whole or not at all. Raises BadInput: it cannot be written there."""
    write_whole(path, (json.dumps(_document(*decision)) + "\n" for decision in decisions))


def _document(now: Snapshot, grants: Iterable[Grant]) -> dict[str, Any]:
    nodes = [
        {"count": len(list(group)), "capacity": dict(capacity)}
        for capacity, group in groupby(now.nodes, key=lambda node: node.capacity)
    ]
    jobs = [_job_document(state, grant) for state, grant in zip(now.jobs, grants, strict=True)]
    return {"slot": now.slot, "slot_seconds": now.slot_seconds, "nodes": nodes, "jobs": jobs}


def _job_document(state: JobState, grant: Grant) -> dict[str, Any]:
    known = asdict(replace(state.job, epochs=state.job.estimate))
    return {
        **but_the_usual({name: known[name] for name in _OF_JOB}),
        "epochs_done": state.epochs_done,
        "slots_run": state.slots_run,
        "workers_before": state.workers,
        "servers_before": state.servers,
        "workers": int(grant.workers),  # JSON knows no numbers of numpy's, which policies may answer
        "servers": int(grant.servers),
    }


def read_history(path: Path) -> list[Decision]:
    """Return the decisions in the order of the file.

    Raises:
        BadInput: with path, line and reason: the file is empty or torn, a field is missing, unknown or wrong, a job
            cannot be, comes again, or was given what it cannot have.
    """
    fields = {"slot": whole_number, "slot_seconds": number, "nodes": _objects, "jobs": _objects}
    return [_decision(where, **line) for where, line in read_objects(path, fields, frozenset(), _MOST_BYTES)]


def _decision(where: str, slot: int, slot_seconds: float, nodes: list[Any], jobs: list[Any]) -> Decision:
    check_range(f"{where}: slot_seconds", slot_seconds, LATEST, zero=False)
    read = [_job(f"{where}: job {place}", given) for place, given in enumerate(jobs, 1)]
    read.sort(key=lambda each: each[0].job.arrival)
    ids = [state.job.id for state, _ in read]
    if again := [str(name) for name in ids if ids.count(name) > 1]:
        raise BadInput(f"{where}: id {again[0]} again: give every job its own")
    states, grants = zip(*read, strict=True) if read else ((), ())
    return Snapshot(slot, slot_seconds, _nodes(where, nodes), states), grants


def _nodes(where: str, groups: list[Any]) -> tuple[Node, ...]:
    capacities: list[dict[str, float]] = []
    for place, given in enumerate(groups, 1):
        group = read_fields(f"{where}: nodes {place}", given, {"count": whole_number, "capacity": amounts}, frozenset())
        if not 0 < group["count"] <= MOST_NODES - len(capacities):
            raise BadInput(f"{where}: nodes {place}: count is {group['count']}: give 1 to {MOST_NODES} nodes in all")
        check_capacity(f"{where}: nodes {place}", group["capacity"])
        capacities += [group["capacity"]] * group["count"]
    if not capacities:
        raise BadInput(f"{where}: no nodes: give at least one")
    return tuple(Node(f"node-{place}", capacity) for place, capacity in enumerate(capacities))


def _job(where: str, given: dict[str, Any]) -> tuple[JobState, Grant]:
    fields = read_fields(where, given, {**_OF_JOB, **_STATE_FIELDS, **_GRANT_FIELDS}, frozenset(UNLESS_USUAL))
    job = Job(**{name: fields[name] for name in _OF_JOB if name in fields})
    done, run, *before = (fields[name] for name in _STATE_FIELDS)
    grant = Grant(fields["workers"], fields["servers"])
    try:
        job.check()
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from error
    if not (0 <= done <= MOST_EPOCHS and run >= 0 and min(before) >= 0 and max(before) <= MOST_TASKS):
        raise BadInput(
            f"{where}: {', '.join(_STATE_FIELDS)} are {done}, {run}, {before}: give numbers from 0 on, that can be"
        )
    if not (0 <= grant.workers <= job.max_workers and 0 <= grant.servers <= job.max_servers):
        raise BadInput(f"{where}: {grant.workers} workers and {grant.servers} servers: give 0 to the job's maxima")
    if job.has_servers and grant.runs != (grant.servers > 0):
        raise BadInput(f"{where}: {grant.workers} workers and {grant.servers} servers: give both, or none")
    if grant.workers and not (grant.workers >= job.min_workers and grant.servers >= job.min_servers):
        raise BadInput(f"{where}: {grant.workers} workers and {grant.servers} servers: give the job's minima, or none")
    return JobState(job, done, run, *before), grant


def _objects(value: Any) -> list[dict[str, Any]]:
    """See `Reader`."""
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise TypeError("a list of JSON objects")
    return value
