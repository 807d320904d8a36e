"""The gRPC servicer turns messages into events. It decides only which node may call; for strangers see `admission`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn, TypeVar

import grpc

from coordinator.core import events as ev
from coordinator.core.directives import wanted
from coordinator.core.effects import Why
from coordinator.server import status_view
from coordinator.server.journal import JobFolderUnwritable
from coordinator.server.ledger_files import Ledger, Steps
from coordinator.server.message_checks import checked_introduction, checked_tensor
from coordinator.server.runtime import RefusedError, Runtime
from coordinator.server.wire import (
    MIGRATIONS,
    answer_from_pb,
    introduction_from_pb,
    ledger_from_pb,
    reply_to_pb,
    waits_from_pb,
    wanted_to_pb,
)
from elastic_ps.control.codec import config_id_from_pb, config_id_to_pb, data_from_pb, module_from_pb, tensor_from_pb
from elastic_ps.core.configuration import MOST_NODES, NodeId, Role
from elastic_ps.core.errors import ConfigurationError
from protos import elastic_pb2 as pb
from protos import elastic_pb2_grpc as rpc

_CODES = {
    Why.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Why.PRECONDITION: grpc.StatusCode.FAILED_PRECONDITION,
    Why.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Why.ENDING: grpc.StatusCode.ABORTED,
    Why.AGAIN: grpc.StatusCode.UNAVAILABLE,
    Why.BROKEN: grpc.StatusCode.INTERNAL,
}
_JOINING = {pb.INC_WORKER: Role.WORKER, pb.INC_SERVER: Role.SERVER}
_LEAVING = {pb.DEC_WORKER: Role.WORKER, pb.DEC_SERVER: Role.SERVER}
_LOADING_SECONDS = 1.0

_Message = TypeVar("_Message")

Context = Any
"""grpc.aio's ServicerContext, which has no types."""


class CoordinatorService(rpc.CoordinatorServicer):
    """A `CoordinatorService` answers for one job's coordinator on the wire.

    Args:
        runtime: owner of the state.
        ledger: of the servers.
        steps: of the workers.
    """

    def __init__(self, runtime: Runtime, ledger: Ledger, steps: Steps):
        self._runtime = runtime
        self._ledger = ledger
        self._steps = steps

    # ---- who may call ------------------------------------------------------------------------------------------------

    async def _ready(self, context: Context, rebuilding: bool = False) -> float:
        """Return the time; while the coordinator puts its state together it takes only what is marked `rebuilding`."""
        if self._runtime.state.rebuilding is not None and not rebuilding:
            text = "the coordinator has lost its journal and asks its nodes what it was: ask again in some seconds"
            await context.abort(grpc.StatusCode.UNAVAILABLE, text)
        return self._runtime.now()

    async def _admit(self, request: Any, context: Context, node: bool = True, rebuilding: bool = False) -> float:
        """Refuse nodes that know a higher term, and (`node`) those that are not registered; return the time."""
        now = await self._ready(context, rebuilding)
        if self._runtime.state.rebuilding is not None:
            return now
        caller, term = request.caller, self._runtime.state.job.term
        if caller.term > term:
            text = f"this coordinator has term {term}, the caller knows {caller.term}: a newer one decides"
            await context.abort(grpc.StatusCode.UNAVAILABLE, text)
        if node and caller.node not in self._runtime.state.job.nodes:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no node {caller.node!r} is registered with this job")
        return now

    async def _ask(self, context: Context, kind: type[_Message], make: Callable[[int], ev.JobEvent]) -> _Message:
        try:
            answer = reply_to_pb(await self._runtime.ask(make))
        except (RefusedError, JobFolderUnwritable) as error:
            await self._refuse(context, error)
        assert isinstance(answer, kind)
        return answer

    async def _post(self, context: Context, event: ev.JobEvent) -> None:
        try:
            self._runtime.post(event, refusable=True)
        except (RefusedError, JobFolderUnwritable) as error:
            await self._refuse(context, error)

    async def _refuse(self, context: Context, error: RefusedError | JobFolderUnwritable) -> NoReturn:
        """Refuse a call; a coordinator that cannot write ends, and its callers ask again until another answers."""
        code = _CODES[error.why] if isinstance(error, RefusedError) else grpc.StatusCode.UNAVAILABLE
        await context.abort(code, str(error))
        raise AssertionError("abort raises")

    async def _ledger_loaded(self) -> None:
        """Wait a moment for a ledger that is being read; after that a server is told that nothing is kept yet."""
        until = self._runtime.now() + _LOADING_SECONDS
        while not self._ledger.loaded and self._runtime.now() < until:
            await asyncio.sleep(_LOADING_SECONDS / 20)

    async def _invalid(self, context: Context, text: str) -> NoReturn:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        raise AssertionError("abort raises")

    @property
    def _term(self) -> int:
        return self._runtime.state.job.term

    # ---- nodes -------------------------------------------------------------------------------------------------------

    async def Register(self, request: "pb.RegisterRequest", context: Context) -> "pb.RegisterReply":  # noqa: D102, N802
        now = await self._admit(request, context, request.kind in _LEAVING, rebuilding=request.kind in _JOINING)
        if request.kind in _LEAVING:
            role = _LEAVING[request.kind]
            reply = await self._ask(
                context, pb.RegisterReply, lambda to: ev.LeaveAsked(now, to, request.caller.node, role)
            )
        elif request.kind in _JOINING:
            role = _JOINING[request.kind]
            if not request.nonce:
                await self._invalid(context, "a registration needs a nonce: the same on a retry, another per process")
            if role is Role.SERVER and not 0 < request.port < 65536:
                await self._invalid(context, f"a server needs the port of its data plane, not {request.port}")
            reply = await self._ask(
                context,
                pb.RegisterReply,
                lambda to: ev.Joined(
                    now,
                    to,
                    role,
                    request.host,
                    request.port,
                    request.pid,
                    request.nonce,
                    request.machine,
                    tuple(map(module_from_pb, request.modules)),
                ),
            )
        else:
            await self._invalid(context, f"kind {request.kind}: a registration is INC_ or DEC_, _WORKER or _SERVER")
        reply.term = self._term
        return reply

    async def Listen(self, request: "pb.ListenRequest", context: Context) -> "AsyncIterator[pb.Directive]":  # noqa: D102, N802
        now = await self._admit(request, context, rebuilding=True)
        node = request.caller.node
        rebuilds = self._runtime.state.rebuilding is not None
        try:
            told = introduction_from_pb(request)
            told = checked_introduction(told) if rebuilds else told
        except ConfigurationError as error:
            await self._invalid(context, str(error))
        if rebuilds:
            event: ev.JobEvent = ev.Introduced(now, node, told)
        else:
            await self._same(context, node, told.nonce)
            event = ev.Listening(now, node, told.number, told.version)
        stream = self._runtime.listen(node)
        try:
            await self._post(context, event)
            while (directive := await stream.get()) is not None:
                yield directive
        finally:
            self._runtime.unlisten(node, stream)

    async def _same(self, context: Context, node: NodeId, nonce: str) -> None:
        """Refuse another process's node that a coordinator without a journal gave the same name to."""
        if self._runtime.state.job.nodes[node].nonce != nonce:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"{node} of this job is another process")

    async def Acknowledge(self, request: "pb.AcknowledgeRequest", context: Context) -> "pb.AcknowledgeReply":  # noqa: D102, N802
        now = await self._admit(request, context)
        event = answer_from_pb(request, now)
        if event is None:
            await self._invalid(context, f"answer {request.answer} is not one of the contract's")
        await self._post(context, event)
        return pb.AcknowledgeReply(term=self._term)

    async def Declare(self, request: "pb.DeclareRequest", context: Context) -> "pb.DeclareReply":  # noqa: D102, N802
        now = await self._admit(request, context)
        try:
            tensors = tuple(checked_tensor(tensor_from_pb(tensor)) for tensor in request.tensors)
            data = data_from_pb(request.data) if request.HasField("data") else None
        except ConfigurationError as error:
            await self._invalid(context, str(error))
        reply = await self._ask(
            context,
            pb.DeclareReply,
            lambda to: ev.Declared(
                now, to, request.caller.node, tensors, request.store, request.optimizer, data, request.local_update
            ),
        )
        reply.term = self._term
        return reply

    async def Draw(self, request: "pb.DrawRequest", context: Context) -> "pb.DrawReply":  # noqa: D102, N802
        now = await self._admit(request, context)
        epoch = None if request.any_epoch else request.epoch
        reply = await self._ask(
            context, pb.DrawReply, lambda to: ev.DrawAsked(now, to, request.caller.node, request.number, epoch)
        )
        reply.term = self._term
        return reply

    async def Barrier(self, request: "pb.BarrierRequest", context: Context) -> "pb.BarrierReply":  # noqa: D102, N802
        now = await self._admit(request, context)
        node, place, sharing = request.caller.node, (request.place, request.number), tuple(request.sharing)
        reply = await self._ask(
            context, pb.BarrierReply, lambda to: ev.BarrierAsked(now, to, node, place, sharing, request.version)
        )
        reply.term = self._term
        return reply

    async def Report(self, request: "pb.ReportRequest", context: Context) -> "pb.ReportReply":  # noqa: D102, N802
        if request.ledger:
            await self._ledger_loaded()
        now = await self._admit(request, context)
        node, job = request.caller.node, self._runtime.state.job
        try:
            of = ledger_from_pb(request, job.all_reduces)
            kept = self._ledger.store(of, request.ledger_sequence, request.ledger, job.ended)
            self._steps.store(node, request.steps)
        except ConfigurationError as error:
            await self._invalid(context, str(error))
        except JobFolderUnwritable as error:
            self._runtime.fail(error)
            await self._refuse(context, error)
        await self._post(
            context,
            ev.Reported(
                now,
                node,
                request.version,
                request.step_seconds,
                request.rtt_seconds,
                request.rate,
                request.bytes,
                dict(request.metrics),
                request.finished,
                request.exchanging,
                dict(request.transports),
                waits_from_pb(request, now),
                request.copied,
                request.place,
                (config_id_from_pb(request.group), request.attempt),
            ),
        )
        group, attempt = self._runtime.state.failed_group
        return pb.ReportReply(term=self._term, ledger_kept=kept, group=config_id_to_pb(group), attempt=attempt)

    async def Command(self, request: "pb.CommandRequest", context: Context) -> "pb.CommandReply":  # noqa: D102, N802
        now = await self._admit(request, context)
        if not request.id:
            await self._invalid(context, "a command needs an id: the same on a retry, another for each command")
        node, number, head = request.caller.node, request.id, request.head
        reply = await self._ask(
            context, pb.CommandReply, lambda to: ev.CommandAsked(now, to, node, number, head, request.body)
        )
        reply.term = self._term
        return reply

    # ---- launchers ---------------------------------------------------------------------------------------------------

    async def Attach(self, request: "pb.AttachRequest", context: Context) -> "AsyncIterator[pb.Wanted]":  # noqa: D102, N802
        await self._ready(context, rebuilding=True)
        try:
            stream = self._runtime.attach(wanted_to_pb(wanted(self._runtime.state.job)))
        except (RefusedError, JobFolderUnwritable) as error:
            await self._refuse(context, error)
        try:
            while (message := await stream.get()) is not None:
                yield message
        finally:
            self._runtime.detach(stream)

    async def NodeExited(self, request: "pb.NodeExitedRequest", context: Context) -> "pb.NodeExitedReply":  # noqa: D102, N802
        now = await self._ready(context, rebuilding=True)
        job = self._runtime.state.job
        known = request.nonce in {*job.expelled, *(node.nonce for node in job.nodes.values())}
        await self._post(context, ev.Exited(now, request.nonce, request.node, request.status))
        return pb.NodeExitedReply(term=self._term, known=known)

    # ---- operators ---------------------------------------------------------------------------------------------------

    async def Scale(self, request: "pb.ScaleRequest", context: Context) -> "pb.ScaleReply":  # noqa: D102, N802
        now = await self._ready(context)
        for name, count in (("workers", request.workers), ("servers", request.servers)):
            if count > MOST_NODES:
                await self._invalid(context, f"{name} must be from 1 to {MOST_NODES}, not {count}")
        return await self._ask(
            context,
            pb.ScaleReply,
            lambda to: ev.ScaleAsked(
                now,
                to,
                request.workers,
                request.servers,
                request.dry_run,
                request.wait_in_queue,
                MIGRATIONS[request.mode],
                request.cause,
            ),
        )

    async def Drain(self, request: "pb.DrainRequest", context: Context) -> "pb.ScaleReply":  # noqa: D102, N802
        now = await self._ready(context)
        return await self._ask(
            context,
            pb.ScaleReply,
            lambda to: ev.DrainAsked(now, to, request.node, request.wait_in_queue, request.cause),
        )

    async def Evict(self, request: "pb.EvictRequest", context: Context) -> "pb.EvictReply":  # noqa: D102, N802
        now = await self._ready(context)
        cause = request.cause or ev.EvictAsked.cause
        return await self._ask(context, pb.EvictReply, lambda to: ev.EvictAsked(now, to, request.node, cause))

    async def Cancel(self, request: "pb.CancelRequest", context: Context) -> "pb.CancelReply":  # noqa: D102, N802
        now = await self._ready(context)
        return await self._ask(context, pb.CancelReply, lambda to: ev.CancelAsked(now, to, request.plan))

    async def Checkpoint(self, request: "pb.CheckpointRequest", context: Context) -> "pb.CheckpointReply":  # noqa: D102, N802
        now = await self._ready(context)
        return await self._ask(context, pb.CheckpointReply, lambda to: ev.CheckpointAsked(now, to, request.url))

    async def Stop(self, request: "pb.StopRequest", context: Context) -> "pb.StopReply":  # noqa: D102, N802
        now = await self._ready(context)
        reason = request.reason or ev.StopAsked.reason
        return await self._ask(
            context, pb.StopReply, lambda to: ev.StopAsked(now, to, request.now, reason, request.failed)
        )

    async def Status(self, request: "pb.StatusRequest", context: Context) -> "pb.StatusReply":  # noqa: D102, N802
        now = await self._ready(context, rebuilding=True)
        return status_view.status(self._runtime.state, now, self._runtime.trouble)

    async def Plans(self, request: "pb.PlansRequest", context: Context) -> "pb.PlansReply":  # noqa: D102, N802
        await self._ready(context, rebuilding=True)
        return status_view.plans(self._runtime.state, request.request, request.latest)

    async def Ledger(self, request: "pb.LedgerRequest", context: Context) -> "AsyncIterator[pb.LedgerEntry]":  # noqa: D102, N802
        await self._ready(context)
        for entry in self._ledger.entries(self._runtime.state.job.voids):
            yield entry

    async def Steps(self, request: "pb.StepsRequest", context: Context) -> "AsyncIterator[pb.StepRow]":  # noqa: D102, N802
        await self._ready(context)
        for row in self._steps.rows():
            yield row
