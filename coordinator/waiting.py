"""Waiting for a plan to end, over cancellations that the coordinator mends and over its restarts."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from coordinator.client import ClientError, CoordinatorClient, CoordinatorUnreachable
from protos import elastic_pb2 as pb

AWAY_SECONDS = 30.0
"""How long a coordinator may be away before nobody is expected to start it again."""

TAKEN_UP_SECONDS = 15.0
"""How long after a cancellation the next plan may begin: a launcher starts the node that died once more."""

ENDED = ("finished", "failed")
"""Phases of a job after which nothing happens any more."""

_POLL_SECONDS = 0.1


class JobOver(ClientError):
    """The job ended before the plan did."""


class Patience:
    """Bears a coordinator that is away for a while, as one is when it restarts."""

    def __init__(self, seconds: float = AWAY_SECONDS, now: Callable[[], float] = time.monotonic):
        self._seconds = seconds
        self._now = now
        self._away_since: float | None = None

    def answered(self) -> None:
        """It is there."""
        self._away_since = None

    def away(self, error: CoordinatorUnreachable) -> None:
        """It did not answer; raises `error` once that has lasted too long."""
        if self._away_since is None:
            self._away_since = self._now()
        elif self._now() - self._away_since > self._seconds:
            raise error


@dataclass(frozen=True)
class Request:
    """What an operator has asked for and waits for.

    Attributes:
        after: id of the newest plan that cannot be the one that does it.
        queued: it waits behind a plan under way.
        still_wanted: whether the job still aims at it.
    """

    after: int
    queued: bool
    still_wanted: Callable[[pb.StatusReply], bool]


class Verdict(Enum):
    """What a look at a job says about a request."""

    WAIT = auto()
    DONE = auto()  # the plan has ended, for good or ill
    NEXT = auto()  # the plan has ended, another one does what was asked
    MAYBE = auto()  # cancelled, but the job still aims at it: another plan may begin


def judge(request: Request, status: pb.StatusReply, plan: pb.Plan | None, newest: int) -> Verdict:
    """Judge the oldest plan that could be the requested one; `newest` is the highest id of all."""
    if plan is None:
        return Verdict.WAIT
    if plan.phase == "COMMITTED":  # a death's plan may come before the queued one
        return Verdict.NEXT if request.queued and status.queued else Verdict.DONE
    if plan.phase == "CANCELLED":
        if not request.still_wanted(status):
            return Verdict.DONE
        return Verdict.NEXT if newest > plan.id else Verdict.MAYBE
    return Verdict.WAIT


def known_plans(client: CoordinatorClient) -> tuple[pb.StatusReply, dict[int, pb.Plan]]:
    """The job's state and all its plans by id, the one under way among them."""
    status = client.status()
    plans = {plan.id: plan for plan in client.plans()}
    if status.HasField("plan"):
        plans.setdefault(status.plan.id, status.plan)
    return status, plans


def wait_for_plan(client: CoordinatorClient, request: Request, on_phase: Callable[[pb.Plan], None]) -> pb.Plan:
    """The plan that does what was asked, once it is COMMITTED or CANCELLED.

    Args:
        client: of the job.
        request: what was asked.
        on_phase: called at each phase before the last.

    Raises:
        JobOver: the job has ended.
        ClientError: the coordinator stays away, or broke.
    """
    patience = Patience()
    after, seen = request.after, (0, "")
    give_up: float | None = None
    while True:
        look = _look(client, patience)
        if look is None:
            time.sleep(_POLL_SECONDS)
            continue
        status, plans = look
        plan = min((plan for plan in plans.values() if plan.id > after), key=lambda plan: plan.id, default=None)
        verdict = judge(request, status, plan, max(plans, default=0))
        if plan is not None:
            if verdict is Verdict.DONE or (give_up is not None and time.monotonic() > give_up):
                return plan
            if seen != (plan.id, plan.phase):
                seen = (plan.id, plan.phase)
                on_phase(plan)
            if verdict is Verdict.NEXT:
                after, give_up = plan.id, None
                continue
        if status.phase in ENDED:
            raise JobOver(f"the job ended ({status.phase}) before the plan did: {status.reason}".rstrip(": "))
        if verdict is Verdict.MAYBE and give_up is None:
            give_up = time.monotonic() + TAKEN_UP_SECONDS
        time.sleep(_POLL_SECONDS)


def _look(client: CoordinatorClient, patience: Patience) -> tuple[pb.StatusReply, Mapping[int, pb.Plan]] | None:
    try:
        look = known_plans(client)
    except CoordinatorUnreachable as error:
        patience.away(error)
        return None
    patience.answered()
    return look
