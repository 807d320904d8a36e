"""This module translates between the core's directives, answers and replies and the contract's messages."""

import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from google.protobuf.message import Message

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core import node_answers as na
from coordinator.core import replies
from coordinator.core.callers import Introduction
from coordinator.core.job import CancelOrder, StopOrder
from coordinator.core.plans.best_fit import Move
from coordinator.core.plans.plan import MigrationMode
from coordinator.core.plans.promotion import Holding, HoldingKind
from coordinator.core.records import remembered
from coordinator.core.state import ReportedWait
from elastic_ps.control.codec import (
    config_id_from_pb,
    config_id_to_pb,
    configuration_from_pb,
    configuration_to_pb,
    data_from_pb,
    data_to_pb,
    module_from_pb,
    runs_from_pb,
    runs_to_pb,
    tensor_from_pb,
    tensor_to_pb,
)
from elastic_ps.core.configuration import Member, NodeId, Role
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.model import Tensor
from elastic_ps.system.storage import MANIFEST
from protos import elastic_pb2 as pb

_ROLES: dict[int, Role] = {pb.WORKER: Role.WORKER, pb.SERVER: Role.SERVER}
_HOLDINGS: dict[int, HoldingKind] = {
    pb.Holding.SEEN: HoldingKind.SEEN,
    pb.Holding.OWNED: HoldingKind.OWNED,
    pb.Holding.LEAVING: HoldingKind.LEAVING,
    pb.Holding.COPY: HoldingKind.COPY,
    pb.Holding.FROZEN: HoldingKind.FROZEN,
}
_MODES = {MigrationMode.LIVE: pb.LIVE, MigrationMode.PAUSE: pb.PAUSE}
MIGRATIONS = {number: migration for migration, number in _MODES.items()}


@remembered
def directive_to_pb(directive: ef.Directive, term: int, plan: int) -> "pb.Directive":
    """Encode a directive. One that goes to all nodes is encoded once: nobody may change the message.

    Args:
        directive: to a node.
        term: the coordinator's present one.
        plan: id of the plan that it belongs to; 0: none.
    """
    name, encode = _ENCODERS[type(directive)]
    return pb.Directive(term=term, plan=plan, **{name: encode(directive)})


def _welcome(value: ef.Welcome) -> "pb.Welcome":
    message = pb.Welcome(
        tensors=[tensor_to_pb(tensor) for tensor in value.tensors],
        optimizers=value.optimizers,
        identity=value.identity,
        begun=value.begun,
        saves=value.saves,
        since=value.since,
    )
    if value.configuration is not None:
        message.configuration.CopyFrom(configuration_to_pb(value.configuration))
    _fill_data(message, value.data)
    return message


def _fill_data(message: "pb.Welcome | pb.Extend", data: DataSpec | None) -> None:
    if data is not None:
        message.data.CopyFrom(data_to_pb(data))


def _prepare(value: ef.Prepare) -> "pb.Prepare":
    return pb.Prepare(
        configuration=configuration_to_pb(value.configuration),
        mode=_MODES[value.migration],
        dead=value.dead,
        restore=f"{value.restore}/{MANIFEST}" if value.restore else "",
        undecided=value.undecided,
    )


def _extend(value: ef.Extend) -> "pb.Extend":
    tensors = [tensor_to_pb(tensor) for tensor in value.tensors]
    number = config_id_to_pb(value.configuration)
    message = pb.Extend(tensors=tensors, assignment=value.assignment, optimizers=value.optimizers, configuration=number)
    message.followers.extend(value.followers)
    message.growth = value.growth
    _fill_data(message, value.data)
    return message


def _adopt(value: ef.Adopt) -> "pb.Adopt":
    message = pb.Adopt(configuration=config_id_to_pb(value.number))
    if value.decided is not None:
        message.decided.CopyFrom(configuration_to_pb(value.decided))
    message.promoted.extend(runs_to_pb(value.promoted))
    return message


_ENCODERS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    ef.Welcome: ("welcome", _welcome),
    ef.Prepare: ("prepare", _prepare),
    ef.Arm: ("arm", lambda d: pb.Arm(configuration=config_id_to_pb(d.number), clock=d.clock)),
    ef.Adopt: ("adopt", _adopt),
    CancelOrder: (
        "cancel",
        lambda d: pb.CancelPlan(configuration=config_id_to_pb(d.number), reason=d.reason, leave=d.leave),
    ),
    ef.Committed: ("committed", lambda d: pb.Committed(configuration=config_id_to_pb(d.number))),
    ef.Resume: ("resume", lambda d: pb.Resume(configuration=config_id_to_pb(d.number))),
    ef.Extend: ("extend", _extend),
    ef.SaveBlocks: ("save", lambda d: pb.Save(clock=d.clock, url=d.url, given_up=d.given_up)),
    StopOrder: ("stop", lambda d: pb.Stop(reason=d.reason, restart=d.restart, failed=d.failed)),
    ef.TryOptimizer: ("trial", lambda d: pb.Trial(optimizer=d.optimizer, dtypes=d.dtypes)),
    ef.RunCommand: ("command", lambda d: pb.ServerCommand(id=d.id, head=d.head, body=d.body)),
}


def introduction_from_pb(request: "pb.ListenRequest") -> Introduction:
    """Return what a node that opens its stream knows.

    Raises:
        ConfigurationError: it cannot be a node's of a job.
    """
    told, name = request.introduction, request.caller.node
    role = _ROLES.get(told.role)
    if role is None or not re.fullmatch(rf"{role[0]}\d+", name):
        raise ConfigurationError(f"{name!r} is no name of a node of role {told.role}")
    return Introduction(
        Member(name, role, told.host, told.port, told.machine),
        told.pid,
        told.nonce,
        term=request.caller.term,
        version=request.version,
        current=configuration_from_pb(told.current) if told.HasField("current") else None,
        prepared=configuration_from_pb(told.prepared) if told.HasField("prepared") else None,
        clock=told.clock if told.HasField("clock") else None,
        paused=told.paused,
        leaving=told.leaving,
        dead=frozenset(told.dead),
        cancelled=config_id_from_pb(told.cancelled),
        synced=config_id_from_pb(told.synced),
        tensors=tuple(tensor_from_pb(tensor) for tensor in told.tensors),
        optimizers=tuple(told.optimizers),
        data=data_from_pb(told.data) if told.HasField("data") else None,
        local_update=told.local_update,
        seed=told.seed,
        block_bytes=told.block_bytes,
        plan=told.plan,
        passed=(told.barrier_place, told.barrier_number) if told.barred else (-1, -1),
        identity=told.identity,
        begun=told.begun,
        saves=told.saves,
        since=told.since,
        promoted=runs_from_pb(told.promoted),
        before=configuration_from_pb(told.before) if told.HasField("before") else None,
        undecided=told.undecided,
        modules=tuple(map(module_from_pb, told.modules)),
    )


def ledger_from_pb(request: "pb.ReportRequest", all_reduces: bool) -> NodeId:
    """Return whose ledger a report tells of: its node's, or the one that all workers have together.

    Args:
        request: a node's report.
        all_reduces: the job has no servers.

    Raises:
        ConfigurationError: another's, of which it would hide what that one tells.
    """
    node, of = request.caller.node, request.ledger_of or request.caller.node
    if of != node and not (all_reduces and re.fullmatch(r"workers\.\d+", of)):
        raise ConfigurationError(f"{node} reports the ledger {of!r}, which is not its own")
    return of


def waits_from_pb(request: "pb.ReportRequest", now: float) -> tuple[ReportedWait, ...]:
    """Return whom a node waits for; `now` and the result's times are unix seconds. What is no duration counts as 0."""
    return tuple(
        ReportedWait(wait.peer, wait.what, now - (wait.seconds if 0 < wait.seconds < now else 0.0), wait.unreachable)
        for wait in request.waits
    )


def answer_from_pb(request: "pb.AcknowledgeRequest", now: float) -> ev.JobEvent | None:
    """Return the event of an answer; None for a kind that this program does not know."""
    decode = _DECODERS.get(request.answer)
    return decode(now, request.caller.node, config_id_from_pb(request.configuration), request) if decode else None


def _holdings(request: "pb.AcknowledgeRequest") -> tuple[Holding, ...]:
    """Return what a node has of some blocks; a kind that this program does not know counts as nothing."""
    return tuple(
        Holding(kind, holding.version, runs_from_pb(holding.runs))
        for holding in request.holdings
        if (kind := _HOLDINGS.get(holding.kind)) is not None
    )


_DECODERS: dict[int, Callable[[float, str, Any, Any], ev.JobEvent]] = {
    pb.PREPARED: lambda now, node, number, r: na.Prepared(now, node, number, r.version, _holdings(r)),
    pb.SYNCED: lambda now, node, number, r: na.Synced(now, node, number, r.version, r.detail),
    pb.ARMED: lambda now, node, number, r: na.Armed(now, node, number, r.version),
    pb.LATE: lambda now, node, number, r: na.Late(now, node, number, r.version),
    pb.SWITCHED: lambda now, node, number, r: na.Switched(now, node, number, r.version, r.suspension_ms, r.bytes_moved),
    pb.ARRIVED: lambda now, node, number, r: na.Arrived(now, node, number),
    pb.FOLLOWED: lambda now, node, number, r: na.Followed(now, node, number),
    pb.CANCELLED: lambda now, node, number, r: na.Forgotten(now, node, number),
    pb.EXTENDED: lambda now, node, number, r: na.Extended(now, node, r.growth),
    pb.SAVED: lambda now, node, number, r: na.Saved(now, node, r.version, r.detail),
    pb.UNREADABLE: lambda now, node, number, r: na.CheckpointUnreadable(now, node, number, r.detail),
    pb.UNREAD: lambda now, node, number, r: na.CheckpointUnreadable(now, node, number, r.detail, damaged=False),
    pb.TRIED: lambda now, node, number, r: na.Tried(now, node, r.optimizer, r.detail),
    pb.BROKEN: lambda now, node, number, r: na.Broken(now, node, r.detail),
    pb.COMMANDED: lambda now, node, number, r: na.Commanded(now, node, r.command, r.detail),
}


_REPLIES: dict[type, Callable[..., Message]] = {
    replies.RegisterReply: pb.RegisterReply,
    replies.DeclareReply: pb.DeclareReply,
    replies.DrawReply: pb.DrawReply,
    replies.BarrierReply: pb.BarrierReply,
    replies.CommandReply: pb.CommandReply,
    replies.ScaleReply: pb.ScaleReply,
    replies.EvictReply: pb.EvictReply,
    replies.CancelReply: pb.CancelReply,
    replies.CheckpointReply: pb.CheckpointReply,
    replies.StopReply: pb.StopReply,
}


def reply_to_pb(reply: replies.CallerReply) -> Message:
    """Encode what a caller is answered: the fields are named as the contract's, which has the term besides."""
    return _REPLIES[type(reply)](**{field.name: _reply_value(getattr(reply, field.name)) for field in fields(reply)})


def _reply_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_reply_value(item) for item in value]
    if isinstance(value, Move):
        return pb.Move(source=value.source, target=value.target, blocks=value.blocks, bytes=value.bytes)
    return tensor_to_pb(value) if isinstance(value, Tensor) else value


def wanted_to_pb(value: ef.WantedProcesses) -> "pb.Wanted":
    """Encode."""
    return pb.Wanted(
        workers=value.workers,
        servers=value.servers,
        leaving=value.leaving,
        starting_workers=value.starting_workers,
        starting_servers=value.starting_servers,
        ended=value.ended,
        failed=value.failed,
        reason=value.reason,
        restarting=value.restarting,
        nodes=value.nodes,
        nonces=value.nonces,
        joining=value.joining,
        expelled=value.expelled,
        evicted=value.evicted,
    )
