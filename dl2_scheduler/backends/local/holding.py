"""Jobs that their owners hold: what may be asked of them, and what it changes. Pure."""

from collections.abc import Mapping, Sequence

from dl2_scheduler.backends.local.placing import Claim, place
from dl2_scheduler.backends.local.records import Changes, Record
from dl2_scheduler.backends.local.runtime import SERVER, WORKER, Report
from dl2_scheduler.cluster.errors import Refused
from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.cluster.live import Phase
from dl2_scheduler.cluster.room import NodeRule
from dl2_scheduler.cluster.snapshot import Grant
from dl2_scheduler.cluster.template import SLOTS


def claims_of(record: Record, workers: int, servers: int) -> tuple[Claim, Claim]:
    """What so many tasks of a job take."""
    spec = record.document.spec
    return (
        Claim(record.name, WORKER, workers, {SLOTS: spec.workers.slots}),
        Claim(record.name, SERVER, servers, {SLOTS: spec.servers.slots}),
    )


def present_claims(record: Record) -> tuple[Claim, Claim]:
    """Of an active job: what it has, or is to have where that is more."""
    if record.suspended or (record.phase is Phase.WAITING and not record.held):
        return claims_of(record, record.workers, record.servers)
    return claims_of(record, max(record.workers, record.wanted_workers), max(record.servers, record.wanted_servers))


def held_claims(records: Sequence[Record]) -> list[Claim]:
    """Of all active jobs that the policy does not decide about."""
    return [claim for record in records if record.left_alone for claim in present_claims(record)]


def hold(record: Record, report: Report | None) -> Changes:
    """From now on the job keeps the counts that it was last asked to have.

    Args:
        record: of the job, not ended.
        report: what its coordinator just said; None: nobody answers.

    Raises:
        Refused: it is held already.
    """
    if record.held:
        raise Refused(f"{record.name} is held already; dl2 scale {record.name} gives it other counts")
    counts = (record.wanted_workers, record.wanted_servers)
    if report is not None:
        counts = (report.wanted_workers, report.wanted_servers)
    return {"held": True, "wanted_workers": counts[0], "wanted_servers": counts[1]}


def release(record: Record) -> Changes:
    """The job begins, where it was submitted suspended; else the policy decides about it again.

    Raises:
        Refused: it is neither suspended so nor held.
    """
    if record.suspended:
        return {"suspended": False}
    if not record.held:
        raise Refused(f"{record.name} is not held: the policy decides about it")
    return {"held": False}


def scale(record: Record, workers: int, servers: int, nodes: Sequence[Node], others: Sequence[Claim]) -> Grant:
    """Counts that a held job is to have.

    Args:
        record: of the job, not ended.
        workers: wanted; 0: as they are.
        servers: likewise.
        nodes: with their whole capacity.
        others: of all other held jobs.

    Raises:
        Refused: it is not held, or cannot have them, and why.
    """
    name, spec = record.name, record.document.spec
    if record.suspended:
        raise Refused(f"{name} is suspended; dl2 release {name} first")
    if not record.held:
        raise Refused(f"{name} is scaled by the policy; dl2 hold {name} first")
    if not (workers or servers):
        raise Refused(f"no counts for {name}: give --workers N, --servers N, or both")
    grant = Grant(
        workers or record.wanted_workers or spec.workers.min, servers or record.wanted_servers or spec.servers.min
    )
    for role, count, allowed in (
        ("workers", grant.workers, spec.workers),
        ("servers", grant.servers, spec.servers),
    ):
        if not allowed.min <= count <= allowed.max:
            raise Refused(f"{count} {role} for {name}: its document allows {allowed.min} to {allowed.max}")
    placed = place(nodes, [*others, *claims_of(record, grant.workers, grant.servers)], NodeRule.SPREAD)
    if name in placed.over:
        free = place(nodes, others, NodeRule.SPREAD)
        left = "; ".join(f"{node.name}: {_amounts(amounts)}" for node, amounts in zip(nodes, free.free, strict=True))
        raise Refused(
            f"{name} with {grant.workers} workers and {grant.servers} servers does not fit on the nodes beside the "
            f"other held jobs; there is left: {left}"
        )
    return grant


def _amounts(free: Mapping[str, float]) -> str:
    return ", ".join(f"{max(0.0, amount):g} {name}" for name, amount in free.items()) or "nothing"
