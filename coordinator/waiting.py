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
_TAKEN_UP_SECONDS = 2.0
"""How soon after a cancellation the coordinator starts the plan that takes the wish up again."""


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
        on_phase: called at each phase of the plan before its last.
        patience: with a coordinator that is away.

    Raises:
        JobOver: the job has ended.
        ClientError: the coordinator stays away, or broke.
    """
    patience = patience or Patience()
    seen: tuple[int, str] | None = None
    taken_up_until = 0.0
    while True:
        if (look := _look(client, patience)) is not None:
            status, plans = look
            plan = plans.get(min((number for number in plans if number > after), default=0))
            if plan is not None and plan.phase == "COMMITTED":
                return plan
            if plan is not None and plan.phase == "CANCELLED":
                if max(plans) > plan.id and still_wanted(status):
                    after = plan.id
                    continue
                taken_up_until = taken_up_until or time.monotonic() + _TAKEN_UP_SECONDS
                if not still_wanted(status) or time.monotonic() > taken_up_until:
                    return plan
            elif plan is not None and seen != (plan.id, plan.phase):
                seen = (plan.id, plan.phase)
                taken_up_until = 0.0
                on_phase(plan)
            if status.phase in ENDED:
                raise JobOver(f"the job ended ({status.phase}) before the plan did: {status.reason}".rstrip(": "))
        time.sleep(_POLL_SECONDS)


def _look(client: CoordinatorClient, patience: Patience) -> tuple[pb.StatusReply, dict[int, pb.Plan]] | None:
    try:
        look = known_plans(client)
    except CoordinatorUnreachable as error:
        patience.away(error)
        return None
    patience.answered()
    return look
