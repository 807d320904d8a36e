"""Traces: the jobs that come to a cluster, one JSON object a line, and the cluster that they come to."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.jobs import Job, Node, Resources
from dl2_scheduler.cluster.ranges import MOST_AMOUNT, check_range
from dl2_scheduler.sim.jsonlines import Reader, amounts, name_or_number, number, read_objects, text, whole_number

DEFAULT_CLUSTER = "96x8cpu,8gpu"
MOST_NODES = 100_000

JOB_FIELDS: Mapping[str, Reader] = {
    "id": name_or_number,
    "arrival": number,
    "model": text,
    "epochs": number,
    "samples_per_epoch": number,
    "worker": amounts,
    "server": amounts,
    "max_workers": whole_number,
    "max_servers": whole_number,
    "min_workers": whole_number,
    "min_servers": whole_number,
    "epochs_estimate": number,
    "partition": whole_number,
}
UNLESS_USUAL = {"min_workers": 1, "min_servers": 1, "epochs_estimate": None, "partition": 0}
"""Fields that are written only where they have another value."""
_MAY_LACK = frozenset({"max_workers", "max_servers", *UNLESS_USUAL})
_NODE_FIELDS = {"name": text, "capacity": amounts}

_NOTATION = "nodes as in 96x8cpu,8gpu or 10x8cpu,8gpu+4x16cpu"
_GROUP = re.compile(r"(\d{1,9})x(.*)", re.ASCII)
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([A-Za-z]\w*)", re.ASCII)


def read_trace(path: Path) -> list[Job]:
    """Return the jobs in the order of the file. Raises what `read_lines` does."""
    return list(read_lines(path).values())


def read_lines(path: Path) -> dict[str, Job]:
    """Return jobs by their place, "path:line", for those who find something wrong with them later.

    Raises:
        BadInput: with path, line and reason: the file is empty or torn, a field is missing, unknown or wrong, an id
            comes again, a job cannot be (`Job.check`).
    """
    jobs: dict[str, Job] = {}
    seen: dict[int | str, str] = {}
    for where, fields in read_objects(path, JOB_FIELDS, _MAY_LACK):
        job = Job(**fields)
        try:
            job.check()
        except BadInput as error:
            raise BadInput(f"{where}: {error}") from error
        if job.id in seen:
            raise BadInput(f"{where}: id {job.id} again, as in {seen[job.id]}: give every job its own")
        # Jobs that arrive together are ordered by id.
        first = next(iter(seen), job.id)
        if isinstance(job.id, str) != isinstance(first, str):
            raise BadInput(f"{where}: id {job.id!r} beside {first!r}: give numbers only, or texts only")
        seen[job.id] = where
        jobs[where] = job
    return jobs


def write_trace(path: Path, jobs: Iterable[Job]) -> None:
    """Write a trace, whole or not at all; the same jobs give the same bytes. Raises what `write_whole` does."""
    write_whole(path, map(_line, jobs))


def write_whole(path: Path, lines: Iterable[str]) -> None:
    """Write a file of lines, whole or not at all.

    Raises:
        BadInput: it cannot be written there.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise BadInput(f"{path}: not a file: give the path of one")  # a rename would put a file in a device's place
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)


def _line(job: Job) -> str:
    return json.dumps(but_the_usual(asdict(job))) + "\n"


def but_the_usual(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a job as they are written: usual values are left out."""
    return {name: value for name, value in fields.items() if name not in UNLESS_USUAL or value != UNLESS_USUAL[name]}


def parse_cluster(text: str = DEFAULT_CLUSTER) -> tuple[Node, ...]:
    """Return the nodes of a cluster.

    Args:
        text: groups of equal nodes, `COUNTxAMOUNTresource,...` joined by `+`; or the path of a file of JSON lines with
            the name and the capacity of each node.

    Raises:
        BadInput: with the part, or path and line, and the reason.
    """
    nodes = _parse_groups(text) if _GROUP.match(text) else _read_nodes(Path(text))
    if not nodes:
        raise BadInput(f"{text}: no nodes: give {_NOTATION}")
    return nodes


def _parse_groups(text: str) -> tuple[Node, ...]:
    nodes: list[Node] = []
    for group in text.split("+"):
        match = _GROUP.fullmatch(group)
        if match is None:
            raise BadInput(f"{group!r} in {text!r}: give {_NOTATION}")
        count, capacity = int(match[1]), _parse_amounts(match[2], text)
        if len(nodes) + count > MOST_NODES:
            raise BadInput(f"{group!r} in {text!r}: more than {MOST_NODES} nodes: give fewer")
        nodes += [Node(f"node-{len(nodes) + number}", capacity) for number in range(count)]
    return tuple(nodes)


def _parse_amounts(given: str, whole: str) -> Resources:
    capacity: dict[str, float] = {}
    for part in given.split(","):
        match = _AMOUNT.fullmatch(part)
        if match is None:
            raise BadInput(f"{part!r} in {whole!r}: give an amount and its resource, as in 8cpu")
        if match[2] in capacity:
            raise BadInput(f"{part!r} in {whole!r}: {match[2]} again: give it once")
        capacity[match[2]] = float(match[1])
    check_capacity(whole, capacity)
    return capacity


def _read_nodes(path: Path) -> tuple[Node, ...]:
    if not os.path.isfile(path):  # False also where the text can be no path
        what = "a folder" if os.path.isdir(path) else "no such file"
        raise BadInput(f"{path}: {what}: give {_NOTATION}, or a file of JSON lines with name and capacity")
    nodes: dict[str, Node] = {}
    for where, fields in read_objects(path, _NODE_FIELDS, frozenset()):
        node = Node(**fields)
        if node.name in nodes:
            raise BadInput(f"{where}: node {node.name} again: give every node its own name")
        check_capacity(where, node.capacity)
        nodes[node.name] = node
    return tuple(nodes.values())


def check_capacity(where: str, capacity: Resources) -> None:
    """Refuse what no node can have. Raises BadInput, with where it stands."""
    for resource, amount in capacity.items():
        check_range(f"{where}: the amount of {resource}", amount, MOST_AMOUNT)
    if not any(capacity.values()):
        raise BadInput(f"{where}: a node with nothing: name at least one resource, as in 8cpu")
