"""Operators and programs ask a job's coordinator by this client. It is synchronous; every call has a deadline.

ClientError
├── CoordinatorUnreachable   nobody answers at the address (retryable: a coordinator is restarted from its journal)
├── AccessDenied             the token is not this job's
├── RequestRefused           the coordinator will not do this, and says why (no such node, a plan runs)
└── CoordinatorFailed        the coordinator broke on the request: a bug
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import grpc

from elastic_ps.control.channels import NotTheCoordinator, coordinator_channel
from elastic_ps.core.configuration import MOST_NODES
from elastic_ps.core.errors import ElasticError
from protos import elastic_pb2 as pb
from protos import elastic_pb2_grpc as rpc

CALL_SECONDS = 10.0
CHECKPOINT_SECONDS = 1860.0
"""Longer than a coordinator gives a checkpoint (`core.checkpoints.saving`), so that it says itself what came of it."""


class ClientError(ElasticError):
    """A `ClientError` is any error of the tree above."""


class CoordinatorUnreachable(ClientError):
    """Nobody answers at the coordinator's address."""


class AccessDenied(ClientError):
    """The coordinator does not know this token."""


class RequestRefused(ClientError):
    """The coordinator will not do it; the message says why."""


class CoordinatorFailed(ClientError):
    """The coordinator has failed while it handled the request."""


_UNREACHABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
_DENIED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_REFUSED = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.OUT_OF_RANGE,
)


class CoordinatorClient:
    """A client asks one job's coordinator on behalf of operators. It is a context manager, safe to use from several
    threads.

    Args:
        address: host:port.
        token: the job token, as bytes.
        call_seconds: deadline of every call but `checkpoint`, `ledger` and `steps`.

    Every method raises `ClientError`.
    """

    def __init__(self, address: str, token: bytes, call_seconds: float = CALL_SECONDS):
        self.address = address
        self._call_seconds = call_seconds
        self._channel = coordinator_channel(address, token)
        self._stub = rpc.CoordinatorStub(self._channel)

    def __enter__(self) -> "CoordinatorClient":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def status(self) -> pb.StatusReply:
        """Return the job as it is now: roster, versions, speed, the plan under way, what is queued."""
        reply: pb.StatusReply = self._call(self._stub.Status, pb.StatusRequest())
        return reply

    def plans(self, request: int = 0, latest: int = 0) -> list[pb.Plan]:
        """Return the plans of the job, oldest first. A coordinator of an earlier release returns all of them.

        Args:
            request: only those that are to fulfil it; 0: all.
            latest: only so many, the last ones; 0: all.
        """
        reply: pb.PlansReply = self._call(self._stub.Plans, pb.PlansRequest(request=request, latest=latest))
        return list(reply.plans)

    def scale(
        self,
        workers: int | None = None,
        servers: int | None = None,
        *,
        dry_run: bool = False,
        queue: bool = True,
        mode: "pb.MigrationMode" = pb.LIVE,
        cause: str = "operator",
    ) -> pb.ScaleReply:
        """Ask for other numbers of nodes; answers when the request is taken, not when the plan is done.

        Args:
            workers: wanted count, from 1 to `MOST_NODES`; None: as it is.
            servers: likewise.
            dry_run: only say what would move.
            queue: wait behind a plan that runs; False: be refused then.
            mode: how blocks move.
            cause: shown in the plan's record.
        """
        for name, count in (("workers", workers), ("servers", servers)):
            if count is not None and not 1 <= count <= MOST_NODES:
                raise RequestRefused(f"{name} must be from 1 to {MOST_NODES}, not {count}; `stop` ends a job")
        request = pb.ScaleRequest(
            workers=workers or 0,
            servers=servers or 0,
            dry_run=dry_run,
            wait_in_queue=queue,
            mode=mode,
            cause=cause,
        )
        reply: pb.ScaleReply = self._call(self._stub.Scale, request)
        return reply

    def drain(self, node: str, *, queue: bool = True, cause: str = "operator") -> pb.ScaleReply:
        """Ask for a plan without one node; its wanted count falls by one.

        Args:
            node: its name.
            queue: wait behind a plan that runs; False: be refused then.
            cause: shown in the plan's record.
        """
        request = pb.DrainRequest(node=node, wait_in_queue=queue, cause=cause)
        reply: pb.ScaleReply = self._call(self._stub.Drain, request)
        return reply

    def evict(self, node: str, cause: str = "by an operator") -> pb.EvictReply:
        """Expel a node at once, as if it had died; answers with what follows, for people."""
        reply: pb.EvictReply = self._call(self._stub.Evict, pb.EvictRequest(node=node, cause=cause))
        return reply

    def cancel(self, plan: int = 0) -> pb.CancelReply:
        """Cancel the plan under way, before it is armed; answers with its id, and what was queued and is next.

        Another one than `plan` is left alone; 0: whichever is under way.
        """
        reply: pb.CancelReply = self._call(self._stub.Cancel, pb.CancelRequest(plan=plan))
        return reply

    def checkpoint(self, url: str = "", seconds: float = CHECKPOINT_SECONDS) -> pb.CheckpointReply:
        """Save the job while it trains; answers when the manifest is written.

        Args:
            url: folder, by any fsspec URL; empty: the job's own.
            seconds: deadline.
        """
        request = pb.CheckpointRequest(url=url)
        reply: pb.CheckpointReply = self._call(self._stub.Checkpoint, request, seconds)
        return reply

    def stop(self, *, now: bool = False, reason: str = "") -> None:
        """End the job.

        Args:
            now: do not wait for a checkpoint being written.
            reason: for people; empty: stopped by the operator.
        """
        self._call(self._stub.Stop, pb.StopRequest(now=now, reason=reason))

    def node_exited(self, nonce: str, node: str, status: int) -> None:
        """Tell that a node's process has ended, as its launcher would.

        Args:
            nonce: its launcher's name for it.
            node: its id.
            status: exit status.
        """
        request = pb.NodeExitedRequest(nonce=nonce, node=node, status=status)
        self._call(self._stub.NodeExited, request)

    def ledger(self) -> Iterator[pb.LedgerEntry]:
        """Yield every applied update, in the order in which it was reported."""
        return self._stream(self._stub.Ledger, pb.LedgerRequest())

    def steps(self) -> Iterator[pb.StepRow]:
        """Yield the time of every step at every worker."""
        return self._stream(self._stub.Steps, pb.StepsRequest())

    def _call(self, method: Callable[..., Any], request: Any, seconds: float | None = None) -> Any:
        with self._errors():
            return method(request, timeout=seconds or self._call_seconds)

    def _stream(self, method: Callable[..., Any], request: Any) -> Iterator[Any]:
        with self._errors():
            call = method(request)
            try:
                yield from call
            finally:
                call.cancel()  # the reader may stop before the end

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            raise self._translate(error) from error

    def _translate(self, error: grpc.RpcError) -> ClientError:
        code, details = error.code(), error.details() or ""
        if isinstance(error, NotTheCoordinator):
            return AccessDenied(f"{self.address}: {details}")
        if code in _UNREACHABLE:
            return CoordinatorUnreachable(f"no coordinator answers at {self.address}: {details or code.name}")
        if code in _DENIED:
            return AccessDenied(f"the coordinator at {self.address} refuses the token: {details or code.name}")
        if code in _REFUSED:
            return RequestRefused(details or code.name)
        return CoordinatorFailed(f"the coordinator at {self.address} failed: {code.name} {details}".rstrip())
