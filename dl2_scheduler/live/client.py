"""This module asks a cluster that `dl2 serve` runs, for the commands."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import grpc

from dl2_scheduler.cluster.errors import BadInput, ClusterRefused, NoSuchJob, NotServed, SchedulerError
from protos import cluster_pb2 as pb
from protos import cluster_pb2_grpc as rpc

SOCKET = "socket"
"""In the cluster's folder: where `live.service` answers."""

_LONGEST_PATH = 100  # sockaddr_un has room for 108 bytes

_OPTIONS = (("grpc.max_receive_message_length", -1),)
"""Who serves the folder is trusted, and decisions about a job, and jobs, may be many: 4 MiB, grpc's own bound, are some
ten thousand."""

_CALL_SECONDS = 30.0
_USE_SECONDS = 300.0  # a learnt policy is compiled first, once after an installation
_ERRORS: dict[grpc.StatusCode, type[SchedulerError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: BadInput,
    grpc.StatusCode.NOT_FOUND: NoSuchJob,
    grpc.StatusCode.FAILED_PRECONDITION: ClusterRefused,
}


def socket_path(folder: Path) -> Path:
    """Return the path of the socket on which the cluster of a folder answers.

    Raises:
        BadInput: the folder's path is too long for a socket.
    """
    path = folder.resolve() / SOCKET
    if len(str(path).encode()) > _LONGEST_PATH:
        raise BadInput(f"{path} is longer than a socket's path may be ({_LONGEST_PATH}): give a shorter --folder")
    return path


def address_of(socket: Path) -> str:
    """Return the address of a socket as grpc takes it, which is a URI: #, ? and % mean something else there."""
    return f"unix:{quote(str(socket))}"


class ClusterClient:
    """A `ClusterClient` asks one cluster. It is a context manager.

    Args:
        folder: the folder of its state.

    Raises:
        BadInput: see `socket_path`.

    Every method raises NotServed, and what the cluster refuses with: BadInput, NoSuchJob, ClusterRefused.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._channel = grpc.insecure_channel(address_of(socket_path(folder)), _OPTIONS)
        self._stub = rpc.ClusterStub(self._channel)

    def __enter__(self) -> "ClusterClient":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._channel.close()

    def submit(self, document: str, folder: Path) -> str:
        """Submit a job, and return its name.

        Args:
            document: an ElasticJob, as YAML.
            folder: where its program runs, unless the document says otherwise.
        """
        reply: pb.SubmitReply = self._call(self._stub.Submit, pb.SubmitRequest(document=document, folder=str(folder)))
        return reply.job

    def check(self, document: str, folder: Path) -> str:
        """Check a job as `submit` does, and return its name.

        Args:
            document: an ElasticJob, as YAML.
            folder: where its program would run, unless the document says otherwise.
        """
        request = pb.SubmitRequest(document=document, folder=str(folder), dry_run=True)
        reply: pb.SubmitReply = self._call(self._stub.Submit, request)
        return reply.job

    def jobs(self) -> Sequence[pb.JobStatus]:
        """Return all jobs, by submission."""
        reply: pb.JobsReply = self._call(self._stub.Jobs, pb.JobsRequest())
        return reply.jobs

    def status(self, job: str) -> pb.JobStatus:
        """Return one job."""
        reply: pb.JobsReply = self._call(self._stub.Jobs, pb.JobsRequest(job=job))
        return reply.jobs[0]

    def why(self, job: str, most: int) -> Sequence[pb.Decision]:
        """Return the latest decisions about a job, oldest first."""
        reply: pb.WhyReply = self._call(self._stub.Why, pb.WhyRequest(job=job, most=most))
        return reply.decisions

    def stop(self, job: str) -> None:
        """Ask for a job's end, and return when that is written down."""
        self._call(self._stub.Stop, pb.StopJobRequest(job=job))

    def hold(self, job: str) -> None:
        """Leave a job's counts to `scale`."""
        self._call(self._stub.Hold, pb.HoldRequest(job=job))

    def release(self, job: str) -> None:
        """Let the policy decide about a held job again, or a suspended one begin."""
        self._call(self._stub.Release, pb.ReleaseRequest(job=job))

    def scale(self, job: str, workers: int, servers: int) -> tuple[int, int]:
        """Give a held job other counts, and return the workers and servers that it is to have.

        Args:
            job: its name.
            workers: how many; 0: as they are.
            servers: how many; 0: as they are.
        """
        request = pb.ScaleJobRequest(job=job, workers=workers, servers=servers)
        reply: pb.ScaleJobReply = self._call(self._stub.Scale, request)
        return reply.workers, reply.servers

    def top(self) -> pb.TopReply:
        """Return what the nodes carry now."""
        reply: pb.TopReply = self._call(self._stub.Top, pb.TopRequest())
        return reply

    def use_policy(self, policy: str) -> None:
        """Let a policy decide from the next slot on, by its name."""
        self._call(self._stub.UsePolicy, pb.UsePolicyRequest(policy=policy), _USE_SECONDS)

    def use_shadow(self, policy: str) -> None:
        """Let a policy decide beside, without acting; "" lets none do so any more."""
        self._call(self._stub.UsePolicy, pb.UsePolicyRequest(policy=policy, shadow=True), _USE_SECONDS)

    def policies(self) -> pb.PoliciesReply:
        """Return which policy decides, and how it does."""
        reply: pb.PoliciesReply = self._call(self._stub.Policies, pb.PoliciesRequest())
        return reply

    def _call(self, method: Callable[..., Any], request: Any, seconds: float = _CALL_SECONDS) -> Any:
        try:
            return method(request, timeout=seconds)
        except grpc.RpcError as error:
            kind = _ERRORS.get(error.code())
            if kind is not None:
                raise kind(error.details()) from error
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise NotServed(
                    f"dl2 serve in {self._folder} has not answered for {seconds:g} s: try again; if it never "
                    "does, end it and start it again: jobs go on meanwhile"
                ) from error
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise NotServed(
                    f"dl2 serve in {self._folder} could not answer ({error.code().name}: {error.details()}): "
                    "its output says why"
                ) from error
            raise NotServed(
                f"no dl2 serve answers in {self._folder} ({error.code().name}): start one: "
                f"dl2 serve --slots 2x8 --policy drf --slot 30s --folder {self._folder}"
            ) from error
