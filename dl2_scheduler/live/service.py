"""This module answers a cluster's gRPC calls: messages in and out. It decides nothing."""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import grpc

from dl2_scheduler.cluster.desk import JobDesk, JobStatus, LiveJobPhase
from dl2_scheduler.cluster.errors import BadInput, NoSuchJob, SchedulerError
from dl2_scheduler.cluster.forecast import Forecast
from dl2_scheduler.cluster.shown_job import shown_job
from dl2_scheduler.cluster.snapshot import JobId
from dl2_scheduler.live.client import address_of, socket_path
from dl2_scheduler.live.history import History, JobDecision
from dl2_scheduler.live.policies import Policies
from protos import cluster_pb2 as pb
from protos import cluster_pb2_grpc as rpc

_THREADS = 4
_LONGEST_REFUSAL = 2400  # bytes, each three of a header at most; of whose 8 KiB grpc drops calls

Context = Any
"""grpc's ServicerContext, which has no types."""


class Notes:
    """`Notes` say what goes on beside the loop, for people.

    Attributes:
        comparison: what the guard found last, or that there is none; "": nothing.
        learning: how it goes; "": it does not learn.
        updates: the number of updates of learning.
        sharing: how it goes to share with other clusters what is learnt; "": nothing is shared.
        refitting: how fitting the placement policy's model anew goes; "": it is not fitted anew.
        exploration: how much of the cluster ran for the sake of learning; "": none may.
        forecasts: when jobs start and end, by their names.
    """

    def __init__(self) -> None:
        self.comparison: Callable[[], str] = str
        self.learning: Callable[[], str] = str
        self.updates: Callable[[], int] = int
        self.sharing: Callable[[], str] = str
        self.refitting: Callable[[], str] = str
        self.exploration: Callable[[], str] = str
        self.forecasts: Callable[[], Mapping[JobId, Forecast]] = dict


class ClusterService(rpc.ClusterServicer):
    """A `ClusterService` answers for one cluster on the wire.

    Args:
        desk: takes the requests.
        history: the history of its decisions.
        policies: says which policy decides.
        notes: what else there is to say about them.
    """

    def __init__(self, desk: JobDesk, history: History, policies: Policies, notes: Notes | None = None):
        self._desk = desk
        self._history = history
        self._policies = policies
        self._notes = notes or Notes()

    def Submit(self, request: pb.SubmitRequest, context: Context) -> pb.SubmitReply:  # noqa: D102, N802
        with _refusals(context):
            take = self._desk.check if request.dry_run else self._desk.submit
            return pb.SubmitReply(job=take(request.document, Path(request.folder)))

    def Jobs(self, request: pb.JobsRequest, context: Context) -> pb.JobsReply:  # noqa: D102, N802
        with _refusals(context):
            found = [self._job(request.job)] if request.job else self._desk.jobs()
            forecasts, now = self._notes.forecasts(), time.time()
            statuses = [shown_job(self._with_decision(job), forecasts.get(job.name), now) for job in found]
            return pb.JobsReply(jobs=statuses)

    def Why(self, request: pb.WhyRequest, context: Context) -> pb.WhyReply:  # noqa: D102, N802
        with _refusals(context):
            return pb.WhyReply(decisions=map(_decision, self._decisions(self._job(request.job), request.most)))

    def Stop(self, request: pb.StopJobRequest, context: Context) -> pb.StopJobReply:  # noqa: D102, N802
        with _refusals(context):
            self._desk.stop(request.job)
            return pb.StopJobReply()

    def Hold(self, request: pb.HoldRequest, context: Context) -> pb.HoldReply:  # noqa: D102, N802
        with _refusals(context):
            self._desk.hold(request.job)
            return pb.HoldReply()

    def Release(self, request: pb.ReleaseRequest, context: Context) -> pb.ReleaseReply:  # noqa: D102, N802
        with _refusals(context):
            self._desk.release(request.job)
            return pb.ReleaseReply()

    def Scale(self, request: pb.ScaleJobRequest, context: Context) -> pb.ScaleJobReply:  # noqa: D102, N802
        with _refusals(context):
            grant = self._desk.scale(request.job, request.workers, request.servers)
            return pb.ScaleJobReply(workers=grant.workers, servers=grant.servers)

    def Top(self, request: pb.TopRequest, context: Context) -> pb.TopReply:  # noqa: D102, N802
        with _refusals(context):
            load = self._desk.load()
            return pb.TopReply(
                nodes=[pb.NodeLoad(**asdict(node)) for node in load.nodes],
                tasks=[pb.TaskLoad(**asdict(task)) for task in load.tasks],
                isolation=load.isolation,
                slot_seconds=load.slot_seconds,
            )

    def _with_decision(self, job: JobStatus) -> JobStatus:
        """Add to a job that waits why it does, by the last decision about it too."""
        if job.phase is not LiveJobPhase.WAITING or job.held:
            return job
        last = self._decisions(job, 1)
        decided = "" if job.reason else "the next slot decides about it"
        decided = last[0].reason if last and not last[0].workers else decided
        return replace(job, reason="; ".join(filter(None, (job.reason, decided))))

    def UsePolicy(self, request: pb.UsePolicyRequest, context: Context) -> pb.UsePolicyReply:  # noqa: D102, N802
        with _refusals(context):
            if request.shadow:
                self._policies.use_shadow(request.policy)
            else:
                self._policies.use(request.policy)
            return pb.UsePolicyReply()

    def Policies(self, request: pb.PoliciesRequest, context: Context) -> pb.PoliciesReply:  # noqa: D102, N802
        choice, agreement = self._policies.choice, self._policies.agreement
        return pb.PoliciesReply(
            policy=choice.policy,
            deciding=self._policies.deciding,
            shadow=choice.shadow,
            guard=self._policies.trouble,
            stands_in=choice.stands_in,
            shadow_agreement=-1.0 if agreement is None else agreement,
            updates=self._notes.updates(),
            comparison=self._notes.comparison(),
            learning=self._notes.learning(),
            refitting=self._notes.refitting(),
            exploration=self._notes.exploration(),
            sharing=self._notes.sharing(),
        )

    def _decisions(self, job: JobStatus, most: int) -> list[JobDecision]:
        return self._history.of(job.name, job.submitted, most, job.arrival)

    def _job(self, name: str) -> JobStatus:
        found = {job.name: job for job in self._desk.jobs()}
        if name not in found:
            raise NoSuchJob(f"no job {name}; there are: {', '.join(found) or 'none'}")
        return found[name]


@contextmanager
def _refusals(context: Context) -> Iterator[None]:
    try:
        yield
    except SchedulerError as error:
        codes = {BadInput: grpc.StatusCode.INVALID_ARGUMENT, NoSuchJob: grpc.StatusCode.NOT_FOUND}
        context.abort(codes.get(type(error), grpc.StatusCode.FAILED_PRECONDITION), _cut(str(error)))


def _cut(text: str) -> str:
    """Return what goes with a refusal: it may name thousands of jobs, or fields, and grpc drops what is too long."""
    found = text.encode(errors="replace")
    kept = found[:_LONGEST_REFUSAL].decode(errors="ignore")
    return kept if len(found) <= _LONGEST_REFUSAL else f"{kept}..."


def _decision(decision: JobDecision) -> pb.Decision:
    happened = pb.Happened(**asdict(decision.happened)) if decision.happened else None
    shadow = pb.Shadowed(**asdict(decision.shadow)) if decision.shadow else None
    return pb.Decision(**{**asdict(decision), "happened": happened, "shadow": shadow})


@contextmanager
def serving(service: ClusterService, folder: Path) -> Iterator[None]:
    """Answer on the folder's socket, as long as the context lasts.

    Raises:
        BadInput: see `socket_path`.
    """
    path = socket_path(folder)
    path.unlink(missing_ok=True)  # of a process that was killed: who serves holds the folder's lock
    server = grpc.server(ThreadPoolExecutor(_THREADS, thread_name_prefix="api"))
    rpc.add_ClusterServicer_to_server(service, server)
    server.add_insecure_port(address_of(path))
    path.chmod(0o600)  # whatever the umask was: who may connect, may do everything
    server.start()
    try:
        yield
    finally:
        server.stop(grace=1.0).wait()
