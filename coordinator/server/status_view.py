"""This module shows a job to people: its status and plans, as messages of the contract."""

from itertools import pairwise

from coordinator.core.checkpoints import search_requests
from coordinator.core.checkpoints.saves_in_the_way import stops_later
from coordinator.core.job import DurableJob, RegisteredNode
from coordinator.core.nodes.deaths import lost_shares
from coordinator.core.nodes.failure_detection import suspicions
from coordinator.core.plans.plan import MigrationMode, Phase, Plan, Times
from coordinator.core.plans.protection import protection
from coordinator.core.plans.unprotected import unprotected
from coordinator.core.state import State
from elastic_ps.control.codec import config_id_to_pb, data_to_pb, member_to_pb
from elastic_ps.core.configuration import Role
from elastic_ps.core.data_order import DataSpec, place
from protos import elastic_pb2 as pb


def status(state: State, now: float, trouble: str = "") -> "pb.StatusReply":
    """Return the job as it is now.

    Args:
        state: of the coordinator.
        now: unix seconds.
        trouble: of the coordinator itself, for people.
    """
    job = state.job
    message = pb.StatusReply(
        job=state.settings.name,
        phase=job.phase,
        reason=_reason(state, trouble),
        term=job.term,
        nodes=[_node(state, node, now) for node in job.nodes.values()],
        wanted_workers=job.goal.workers,
        wanted_servers=job.goal.servers,
        version=state.version,
        rate=_rate(state),
        queued=queued(job),
        requests=[request.number for request in job.goal.wishes],
        queued_requests=[request.number for request in job.queued],
        withdrawn=dict(job.withdrawn),
        blocks=len(job.model.blocks),
        bytes=sum(tensor.nbytes for tensor in job.model.tensors),
        optimizers=job.optimizers,
        data=data_to_pb(job.data or DataSpec()),
        unsaved=state.unsaved,
        checkpoint=job.checkpoints[-1] if job.checkpoints else "",
        rebuilt=state.rebuilt,
        ledger_began_late=bool(job.rebuilt or job.forgotten),  # journals of before `forgotten` have the first alone
        forgotten=job.forgotten,
        waiting=_waiting(state, now),
        protection=_protection(state, now),
    )
    if job.configuration is not None:
        message.configuration.CopyFrom(config_id_to_pb(job.configuration.id))
    message.epoch, message.step = _progress(state)
    if job.plan is not None:
        message.plan.CopyFrom(plan(job.plan))
    return message


def _waiting(state: State, now: float) -> list[str]:
    """Return whom the job waits for, as sentences; what has stood for less than a quarter of a lease is no wait yet."""
    least = state.settings.lease / 4
    return [suspicion.text(now) for suspicion in suspicions(state, now) if now - suspicion.since >= least]


def _rate(state: State) -> float:
    """Return the samples a second of the configuration in force.

    0: the job has ended, or not all of the workers have told theirs yet.
    """
    configuration = None if state.job.ended else state.job.configuration
    vitals, names = state.vitals, configuration.ranks if configuration else ()
    rates = [vitals[name].rate if name in vitals else 0.0 for name in names]  # nobody is heard as a coordinator begins
    return sum(rates) if all(rates) else 0.0


def _reason(state: State, trouble: str) -> str:
    """Return why the job is where it is, and what keeps it there."""
    job = state.job
    sought = search_requests.words(state.looking)
    search = f"{state.looking.trouble}; asked again {sought}" if state.looking is not None and sought else ""
    said = job.reason or stops_later(state) or lost_shares(job)
    return "; ".join(filter(None, (said, search, trouble)))


def _protection(state: State, now: float) -> "pb.Protection | None":
    """Return how much survives the death of a server, and why not all does; None where nobody asks for that."""
    if not state.settings.replicas or state.job.ended:
        return None
    found = protection(state.job)
    message = pb.Protection(blocks=found.blocks, bytes=found.nbytes)
    if (lacking := unprotected(state, found, now)) is not None:
        message.cause, message.why, message.retry_seconds = lacking.cause, lacking.why, lacking.retry_seconds
    return message


def _progress(state: State) -> tuple[int, int]:
    """Return the epoch, and the step in it; where batches are drawn, how many of it are done."""
    data = state.job.data
    if data is None or not data.elastic:
        return 0, 0
    if not data.is_sync:
        return state.book.epoch, state.book.done
    where = place(data, state.version)
    return where.epoch, where.step


def queued(job: DurableJob) -> str:
    """Return what waits behind the plan under way, in words; the names in it stand alone."""
    if job.queued:
        return "; ".join(map(str, job.queued))
    waiting = [name for role in Role for name in job.waiting(role)] if job.plan and job.plan.target else []
    return f"registered: {' '.join(waiting)}" if waiting else ""


def _node(state: State, node: RegisteredNode, now: float) -> "pb.NodeStatus":
    job, vitals = state.job, state.vitals.get(node.id)
    message = pb.NodeStatus(
        member=member_to_pb(node.member),
        rank=_rank(job, node),
        state=_standing(job, node),
        pid=node.pid,
        nonce=node.nonce,
    )
    if vitals is not None:
        message.version, message.step_seconds, message.rate = vitals.version, vitals.step_seconds, vitals.rate
        message.bytes = vitals.bytes
        message.lease_left = vitals.heard + state.settings.lease - now
        message.metrics.update(vitals.metrics)
        message.transports.update(vitals.transports)
    if node.role is Role.SERVER and job.configuration is not None:
        held = job.configuration.blocks_of.get(node.id, ())
        message.bytes = sum(job.model.blocks[block].nbytes for block in held)
    return message


def _rank(job: DurableJob, node: RegisteredNode) -> int:
    """Place among its role; -1: not in the configuration."""
    if job.configuration is None or node.id not in job.members:
        return -1
    roster = job.configuration.workers if node.role is Role.WORKER else job.configuration.servers
    return [member.id for member in roster].index(node.id)


def _standing(job: DurableJob, node: RegisteredNode) -> str:
    plan = job.plan
    if node.departing or (plan is not None and node.id in plan.leavers):
        return "leaving"
    if node.id in job.members:
        return "member"
    return "shadow" if plan is not None and node.id in plan.joiners else "joining"


def plan(record: Plan) -> "pb.Plan":
    """Return a plan, under way or ended, as a message."""
    return pb.Plan(
        id=record.id,
        configuration=config_id_to_pb(record.number),
        phase=record.phase,
        cause=record.cause,
        reason=record.reason,
        requests=record.requests,
        joined=record.joiners,
        left=[*record.leavers, *sorted(record.dead)],
        missing=record.missing,
        clock=record.clock or 0,
        steps_ms=steps_ms(record),
        bytes_moved=sum(record.moved.values()),
        suspension_ms=dict(record.suspension),
        mode=pb.PAUSE if record.migration is MigrationMode.PAUSE else pb.LIVE,
        fell_back=record.fell_back,
        started=record.started,
        ended=record.ended,
    )


def steps_ms(record: Plan) -> list[float]:
    """Return milliseconds of registration, assignment, migration, worker update (DL2 section 5), as far as reached."""
    times: Times = record.times
    marks = [record.started, times.assigned, times.prepared, times.first_switched, times.last_switched]
    reached = [mark for mark in marks if mark]
    durations = [(end - begin) * 1000 for begin, end in pairwise(reached)]
    return durations + [0.0] * (4 - len(durations)) if record.phase is Phase.COMMITTED else durations


def plans(state: State, request: int = 0, latest: int = 0) -> "pb.PlansReply":
    """Return the job's plans, oldest first, the one under way last.

    Args:
        state: of the coordinator.
        request: only those that are to fulfil it; 0: all.
        latest: only so many, the last ones; 0: all.
    """
    listed = [*state.history, *([state.job.plan] if state.job.plan else [])]
    found = sorted((each for each in listed if not request or request in each.requests), key=lambda each: each.id)
    return pb.PlansReply(plans=map(plan, found[-latest:]))
