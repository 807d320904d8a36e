"""Waiting for a plan to end, over restarts of the coordinator."""

import time
from collections.abc import Callable

from coordinator.client import ClientError, CoordinatorClient, CoordinatorUnreachable
from protos import elastic_pb2 as pb

AWAY_SECONDS = 30.0
"""How long a coordinator may be away before nobody is expected to start it again."""

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


def known_plans(client: CoordinatorClient) -> tuple[pb.StatusReply, dict[int, pb.Plan]]:
    """The job's state and all its plans by id, the one under way among them."""
    status = client.status()
    plans = {plan.id: plan for plan in client.plans()}
    if status.HasField("plan"):
        plans.setdefault(status.plan.id, status.plan)
    return status, plans


def wait_for_plan(
    client: CoordinatorClient,
    after: int,
    still_wanted: Callable[[pb.StatusReply], bool],
    on_phase: Callable[[pb.Plan], None],
    patience: Patience | None = None,
) -> pb.Plan:
    """The first plan with an id above `after`, once it is COMMITTED or CANCELLED.

    A plan that the coordinator cancels by itself (a death, new tensors) and whose wish it takes up again is followed
    into the next plan.

    Args:
        client: of the job.
        after: the newest plan that is not the one awaited.
        still_wanted: whether the job still aims at what was asked for.
        on_phase: called at each phase of the plan.
        patience: with a coordinator that is away.

    Raises:
        JobOver: the job has ended.
        ClientError: the coordinator stays away, or broke.
    """
    patience = patience or Patience()
    seen: tuple[int, str] | None = None
    while True:
        try:
            status, plans = known_plans(client)
        except CoordinatorUnreachable as error:
            patience.away(error)
            time.sleep(_POLL_SECONDS)
            continue
        patience.answered()
        awaited = min((number for number in plans if number > after), default=None)
        if awaited is not None:
            plan = plans[awaited]
            if seen != (plan.id, plan.phase):
                seen = (plan.id, plan.phase)
                on_phase(plan)
            if plan.phase == "COMMITTED":
                return plan
            if plan.phase == "CANCELLED":
                if not still_wanted(status) or not (status.queued or max(plans) > awaited):
                    return plan
                after = awaited
                continue
        if status.phase in ENDED:
            raise JobOver(f"the job ended ({status.phase}) before the plan did: {status.reason}".rstrip(": "))
        time.sleep(_POLL_SECONDS)
