"""The gRPC servicer of a cluster: messages in and out. It decides nothing."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import grpc

from dl2_scheduler.cluster.errors import BadInput, SchedulerError, UnknownJob
from dl2_scheduler.cluster.live import JobStatus, LiveCluster
from dl2_scheduler.live.history import Decision, History
from protos import cluster_pb2 as pb
from protos import cluster_pb2_grpc as rpc

SOCKET = "socket"
"""In the cluster's folder."""

_LONGEST_PATH = 100  # sockaddr_un has room for 108 bytes
_THREADS = 4

Context = Any
"""grpc's ServicerContext, which has no types."""


class Service(rpc.ClusterServicer):
    """One cluster on the wire.

    Args:
        cluster: is asked.
        history: of its decisions.
    """

    def __init__(self, cluster: LiveCluster, history: History):
        self._cluster = cluster
        self._history = history

    def Submit(self, request: pb.SubmitRequest, context: Context) -> pb.SubmitReply:  # noqa: D102, N802
        with _refusals(context):
            return pb.SubmitReply(job=self._cluster.submit(request.document, Path(request.folder)))

    def Jobs(self, request: pb.JobsRequest, context: Context) -> pb.JobsReply:  # noqa: D102, N802
        with _refusals(context):
            found = [self._job(request.job)] if request.job else self._cluster.jobs()
            return pb.JobsReply(jobs=[_status(job) for job in found])

    def Why(self, request: pb.WhyRequest, context: Context) -> pb.WhyReply:  # noqa: D102, N802
        with _refusals(context):
            since = self._job(request.job).submitted
            return pb.WhyReply(decisions=map(_decision, self._history.of(request.job, since, request.most)))

    def Stop(self, request: pb.StopJobRequest, context: Context) -> pb.StopJobReply:  # noqa: D102, N802
        with _refusals(context):
            self._cluster.stop(request.job)
            return pb.StopJobReply()

    def _job(self, name: str) -> JobStatus:
        found = {job.name: job for job in self._cluster.jobs()}
        if name not in found:
            raise UnknownJob(f"no job {name}; there are: {', '.join(found) or 'none'}")
        return found[name]


@contextmanager
def _refusals(context: Context) -> Iterator[None]:
    try:
        yield
    except SchedulerError as error:
        codes = {BadInput: grpc.StatusCode.INVALID_ARGUMENT, UnknownJob: grpc.StatusCode.NOT_FOUND}
        context.abort(codes.get(type(error), grpc.StatusCode.FAILED_PRECONDITION), str(error))


def _status(job: JobStatus) -> pb.JobStatus:
    return pb.JobStatus(**{**asdict(job), "ended": job.ended or 0.0, "log": str(job.log or "")})


def _decision(decision: Decision) -> pb.Decision:
    happened = pb.Happened(**asdict(decision.happened)) if decision.happened else None
    return pb.Decision(**{**asdict(decision), "happened": happened})


@contextmanager
def serving(service: Service, folder: Path) -> Iterator[None]:
    """Answer on the folder's socket meanwhile.

    Raises:
        BadInput: the folder's path is too long for a socket.
    """
    path = folder.resolve() / SOCKET
    if len(str(path).encode()) > _LONGEST_PATH:
        raise BadInput(f"{path} is longer than a socket's path may be ({_LONGEST_PATH}): give a shorter --folder")
    path.unlink(missing_ok=True)  # of a process that was killed: who serves holds the folder's lock
    server = grpc.server(ThreadPoolExecutor(_THREADS, thread_name_prefix="api"))
    rpc.add_ClusterServicer_to_server(service, server)
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield
    finally:
        server.stop(grace=1.0).wait()
