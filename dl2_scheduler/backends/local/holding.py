"""This module says what may be asked of jobs that their owners hold, and what it changes. It is pure."""

from collections.abc import Mapping, Sequence

from dl2_scheduler.backends.local.job_records import Changes, JobRecord, NodePlaces
from dl2_scheduler.backends.local.places.placing import TaskDemand, fit, place
from dl2_scheduler.backends.local.runtime import SERVER, WORKER, JobReport
from dl2_scheduler.cluster.desk import LiveJobPhase
from dl2_scheduler.cluster.document.job_document import ElasticJob, Scaling
from dl2_scheduler.cluster.document.template import SLOTS
from dl2_scheduler.cluster.errors import BadInput, ClusterRefused
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.cluster.snapshot import Grant
from elastic_ps.system import storage

_PYTHONS = ("python", "python3")
LEAST_SLOTS = 0.001
"""Of a task, as the least that Kubernetes knows of a core: shares of cores are divided by it."""


def demands_of(
    document: ElasticJob, workers: int, servers: int, places: NodePlaces = ((), ())
) -> tuple[TaskDemand, TaskDemand]:
    """Return what so many tasks of a job take.

    Args:
        document: the document of the job.
        workers: how many.
        servers: how many.
        places: nodes that a placement policy has chosen for them.
    """
    name, spec = document.metadata.name, document.spec
    return (
        TaskDemand(name, WORKER, workers, {SLOTS: spec.workers.slots}, places[0]),
        TaskDemand(name, SERVER, servers, {SLOTS: spec.servers.slots}, places[1]),
    )


def check_submitted(document: ElasticJob, nodes: Sequence[Node]) -> None:
    """Refuse a job that could not run here if the nodes were empty.

    Raises:
        BadInput: with what is wrong, or too much.
    """
    _check_command(document)
    name, counts = document.metadata.name, _first_counts(document)
    largest = max(node.capacity[SLOTS] for node in nodes)
    for claim in demands_of(document, *counts):
        if claim.demand[SLOTS] < LEAST_SLOTS:
            raise BadInput(f"{name}: a {claim.role} takes {claim.demand[SLOTS]:g} slots: give {LEAST_SLOTS:g} or more")
        if claim.count and claim.demand[SLOTS] > largest:
            slots = f"{claim.demand[SLOTS]:g} slots, which no node has; the most that a node has is {largest:g}"
            raise BadInput(f"{name}: a {claim.role} takes {slots}")
    claims = demands_of(document, *counts)
    by_policy = document.spec.scaling is not Scaling.MANUAL  # the others are placed as they are counted: by the rule
    if not (fit(nodes, claims) if by_policy else not place(nodes, claims, NodeRule.SPREAD).over):
        raise BadInput(f"{name}: {document.words(*counts)}, its first, do not fit the nodes")
    if document.spec.checkpoint is not None and document.spec.checkpoint.url is not None:
        try:
            storage.check_protocol(document.spec.checkpoint.url)
        except (ValueError, ImportError) as error:
            raise BadInput(f"{name}: spec.checkpoint.url: {error}") from error


def _check_command(document: ElasticJob) -> None:
    """Refuse a command that is none of elasticrun's: a script or a module."""
    container = document.spec.workers.container
    program, *arguments = *container.command, *container.args
    target = arguments[1:] if arguments[:1] == ["-m"] else arguments
    if program not in _PYTHONS or not target or target[0].startswith("-"):
        shown = " ".join([program, *arguments[:2]])
        raise BadInput(
            f"{document.metadata.name}: its command is {shown!r}: here it has to be [python, SCRIPT, ...] or "
            "[python, -m, MODULE, ...]; what python itself is to be told goes into env, as in PYTHONUNBUFFERED"
        )


def submitted(document: ElasticJob) -> Changes:
    """Return what a document says about who decides, as fields of its record."""
    changes: dict[str, object] = {"suspended": document.spec.suspend}
    if document.spec.scaling is Scaling.MANUAL:
        workers, servers = _first_counts(document)
        changes.update(held=True, wanted_workers=workers, wanted_servers=servers)
    return changes


def _first_counts(document: ElasticJob) -> tuple[int, int]:
    """Return the counts that the job begins with, at least."""
    workers, servers = document.spec.workers, document.spec.servers
    if document.spec.scaling is Scaling.MANUAL:
        return workers.count, servers.count
    return workers.min, servers.min


def present_demands(record: JobRecord) -> tuple[TaskDemand, TaskDemand]:
    """Return what the tasks of an active job take: what it has, or is to have where that is more."""
    if record.suspended or (record.phase is LiveJobPhase.WAITING and not record.held):
        return demands_of(record.document, record.workers, record.servers, record.places)
    workers, servers = max(record.workers, record.wanted_workers), max(record.servers, record.wanted_servers)
    return demands_of(record.document, workers, servers, record.places)


def held_demands(records: Sequence[JobRecord]) -> list[TaskDemand]:
    """Return what the tasks of all active jobs take that the policy does not decide about."""
    return [claim for record in records if record.left_alone for claim in present_demands(record)]


def hold(record: JobRecord, report: JobReport | None) -> Changes:
    """Let the job keep, from now on, the counts that it was last asked to have.

    Args:
        record: the record of the job, not ended.
        report: what its coordinator just said; None: nobody answers.

    Raises:
        ClusterRefused: it is held already.
    """
    if record.held:
        raise ClusterRefused(f"{record.name} is held already; dl2 scale {record.name} gives it other counts")
    counts = (record.wanted_workers, record.wanted_servers)
    if report is not None:
        counts = (report.wanted_workers, report.wanted_servers)
    return {"held": True, "wanted_workers": counts[0], "wanted_servers": counts[1]}


def release(record: JobRecord) -> Changes:
    """Let the job begin, where it was submitted suspended; else let the policy decide about it again.

    Raises:
        ClusterRefused: it is neither suspended so nor held.
    """
    if record.suspended:
        return {"suspended": False}
    if not record.held:
        raise ClusterRefused(f"{record.name} is not held: the policy decides about it")
    if record.document.spec.epochs is None:
        raise ClusterRefused(f"{record.name} has no spec.epochs, which policies need: submit it again with them")
    return {"held": False}


def scale(record: JobRecord, workers: int, servers: int, nodes: Sequence[Node], others: Sequence[TaskDemand]) -> Grant:
    """Return the counts that a held job is to have.

    Args:
        record: the record of the job, not ended.
        workers: how many; 0: as they are.
        servers: how many; 0: as they are.
        nodes: with their whole capacity.
        others: what the tasks of all other held jobs take.

    Raises:
        ClusterRefused: it is not held, or cannot have them, and why.
    """
    name, spec = record.name, record.document.spec
    if record.suspended:
        raise ClusterRefused(f"{name} is suspended; dl2 release {name} first")
    if not record.held:
        raise ClusterRefused(f"{name} is scaled by the policy; dl2 hold {name} first")
    if not (workers or servers):
        raise ClusterRefused(f"no counts for {name}: give --workers N, --servers N, or both")
    if servers and record.document.spec.all_reduces:
        raise ClusterRefused(f"{name} has no servers, and gets none: its mode is all-reduce. Scale its workers")
    grant = Grant(
        workers or record.wanted_workers or spec.workers.min, servers or record.wanted_servers or spec.servers.min
    )
    for role, count, allowed in (
        ("workers", grant.workers, spec.workers),
        ("servers", grant.servers, spec.servers),
    ):
        if not allowed.min <= count <= allowed.max:
            raise ClusterRefused(f"{count} {role} for {name}: its document allows {allowed.min} to {allowed.max}")
    placed = place(nodes, [*others, *demands_of(record.document, grant.workers, grant.servers)], NodeRule.SPREAD)
    if name in placed.over:
        free = place(nodes, others, NodeRule.SPREAD)
        left = "; ".join(f"{node.name}: {_amounts(amounts)}" for node, amounts in zip(nodes, free.free, strict=True))
        raise ClusterRefused(
            f"{name} with {record.document.words(grant.workers, grant.servers)} does not fit on the nodes beside the "
            f"other held jobs; there is left: {left}"
        )
    return grant


def _amounts(free: Mapping[str, float]) -> str:
    return ", ".join(f"{max(0.0, amount):g} {name}" for name, amount in free.items()) or "nothing"
