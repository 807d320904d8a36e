"""An operator waits for a plan to end, over cancellations that the coordinator mends and over its restarts."""

import time
from collections.abc import Callable, Iterable
from enum import Enum, auto

from coordinator.client import ClientError, CoordinatorClient, CoordinatorUnreachable
from protos import elastic_pb2 as pb

AWAY_SECONDS = 30.0
"""How long a coordinator may be away before nobody is expected to start it again."""

REBUILDING = "rebuilding"
"""The phase of a job whose coordinator lost its journal and does not know yet what its nodes know."""

ENDED = ("finished", "failed")
"""Phases of a job after which nothing happens any more."""

_GIVEN_UP = ("CANCELLED", "DROPPED")
"""Phases of a plan that has come to nothing."""

_POLL_SECONDS = 0.1

_FORGOTTEN = (
    "the coordinator lost its journal meanwhile, and the request with it: look at `elasticctl status`, and ask again "
    "where the job is not as you want it"
)


class JobOver(ClientError):
    """The job has ended before the plan did."""


class RequestWithdrawn(ClientError):
    """Another request has taken its place."""


class RequestForgotten(RequestWithdrawn):
    """The coordinator has lost its journal, and the request with it."""


class Patience:
    """A patience bears a coordinator that is away for a while, as one is when it restarts."""

    def __init__(self, seconds: float = AWAY_SECONDS, now: Callable[[], float] = time.monotonic):
        self._seconds = seconds
        self._now = now
        self._away_since: float | None = None

    def answered(self) -> None:
        """Note that the coordinator is there."""
        self._away_since = None

    def away(self, error: CoordinatorUnreachable) -> None:
        """Note that the coordinator did not answer; raise `error` once that has lasted too long."""
        if self._away_since is None:
            self._away_since = self._now()
        elif self._now() - self._away_since > self._seconds:
            raise error


class RequestOutcome(Enum):
    """An outcome says what has become of a request, as a look at its job shows."""

    WAIT = auto()
    DONE = auto()  # its last plan has ended, for good or ill
    NOTHING = auto()  # the job was as wanted when its turn came
    WITHDRAWN = auto()  # another request has taken its place


def judge(request: int, status: pb.StatusReply, plans: Iterable[pb.Plan]) -> tuple[RequestOutcome, pb.Plan | None]:
    """Return what has become of a request, and the plan that it is in, where there is one.

    A plan that is cancelled by a death or by new tensors leaves its requests wanted, for the next one.

    Args:
        request: its number.
        status: of the job, older than `plans`.
        plans: of the job, or those for the request.
    """
    if status.phase == REBUILDING:
        return RequestOutcome.WAIT, None
    own = sorted((plan for plan in plans if request in plan.requests), key=lambda plan: plan.id)
    for ended in own:
        if ended.phase == "COMMITTED":
            return RequestOutcome.DONE, ended
    plan: pb.Plan | None = own[-1] if own else None
    if request in status.withdrawn:
        return RequestOutcome.WITHDRAWN, plan
    if request in status.queued_requests or request in status.requests:
        return RequestOutcome.WAIT, plan
    if plan is None:
        return RequestOutcome.NOTHING, None
    return (RequestOutcome.DONE if plan.phase in _GIVEN_UP else RequestOutcome.WAIT), plan


def wait_for_plan(client: CoordinatorClient, request: int, on_phase: Callable[[pb.Plan], None]) -> pb.Plan | None:
    """Wait for the plan that does what was asked; return it COMMITTED or CANCELLED for good, None if none was needed.

    Args:
        client: of the job.
        request: number of what was asked (`ScaleReply.request`).
        on_phase: called at each phase before the last.

    Raises:
        JobOver: the job has ended.
        RequestWithdrawn: another request has taken its place.
        RequestForgotten: the coordinator has lost its journal meanwhile.
        ClientError: the coordinator stays away, or broke.
    """
    patience = Patience()
    seen = (0, "")
    rebuilt: bool | None = None  # before it was asked
    while True:
        look = _look(client, request, patience)
        if look is not None:
            status, plans = look
            verdict, plan = judge(request, status, plans)
            rebuilt = status.rebuilt if rebuilt is None else rebuilt
            if verdict is RequestOutcome.WITHDRAWN:
                raise RequestWithdrawn(f"the request was {status.withdrawn[request]}")
            if verdict is RequestOutcome.DONE:
                return plan
            if status.phase in ENDED:
                raise JobOver(f"the job ended ({status.phase}) before the plan did: {status.reason}".rstrip(": "))
            if verdict is RequestOutcome.NOTHING:
                if request <= status.forgotten or (status.rebuilt and not rebuilt):
                    raise RequestForgotten(_FORGOTTEN)
                return None
            if plan is not None and seen != (plan.id, plan.phase):
                seen = (plan.id, plan.phase)
                on_phase(plan)
        time.sleep(_POLL_SECONDS)


def _look(client: CoordinatorClient, request: int, patience: Patience) -> tuple[pb.StatusReply, list[pb.Plan]] | None:
    try:
        look = client.status(), client.plans(request)
    except CoordinatorUnreachable as error:
        patience.away(error)
        return None
    patience.answered()
    return look
