"""Patience with a coordinator that is away, and what has become of a request."""

from typing import Any

import pytest

from coordinator.client import CoordinatorUnreachable
from coordinator.ctl.plan_wait import Patience, RequestOutcome, judge
from protos import elastic_pb2 as pb

ERROR = CoordinatorUnreachable("nobody there")


def test_patience_ends_after_its_time_and_starts_again_with_an_answer() -> None:
    now = 0.0
    patience = Patience(30.0, lambda: now)
    patience.away(ERROR)
    now = 30.0
    patience.away(ERROR)
    patience.answered()
    now = 50.0
    patience.away(ERROR)
    now = 80.5
    with pytest.raises(CoordinatorUnreachable, match="nobody there"):
        patience.away(ERROR)


def plan(number: int, phase: str, *requests: int) -> pb.Plan:
    return pb.Plan(id=number, phase=phase, requests=requests or [3])


@pytest.mark.parametrize(
    ("status", "plans", "verdict", "followed"),
    [
        ({"queued_requests": [3]}, [], RequestOutcome.WAIT, None),
        ({"queued_requests": [3]}, [plan(6, "COMMITTED", 2)], RequestOutcome.WAIT, None),
        ({"requests": [3]}, [], RequestOutcome.WAIT, None),
        ({"requests": [3]}, [plan(7, "REGISTERED")], RequestOutcome.WAIT, 7),
        ({"requests": [3]}, [plan(7, "ARMED")], RequestOutcome.WAIT, 7),
        ({"requests": [3]}, [plan(7, "CANCELLED")], RequestOutcome.WAIT, 7),
        ({"requests": [3]}, [plan(8, "SYNCING"), plan(7, "CANCELLED")], RequestOutcome.WAIT, 8),
        ({"requests": [3]}, [plan(7, "COMMITTED"), plan(8, "REGISTERED", 4)], RequestOutcome.DONE, 7),
        ({}, [plan(7, "COMMITTED", 2, 3)], RequestOutcome.DONE, 7),
        ({}, [plan(7, "CANCELLED"), plan(8, "COMMITTED")], RequestOutcome.DONE, 8),
        ({}, [plan(7, "CANCELLED"), plan(8, "COMMITTED", 4)], RequestOutcome.DONE, 7),
        ({}, [plan(7, "SYNCING")], RequestOutcome.WAIT, 7),
        ({}, [plan(7, "COMMITTED", 2)], RequestOutcome.NOTHING, None),
        ({"withdrawn": {3: "replaced by: 4"}}, [], RequestOutcome.WITHDRAWN, None),
        ({"withdrawn": {3: "replaced by: 4"}}, [plan(7, "CANCELLED")], RequestOutcome.WITHDRAWN, 7),
        ({"withdrawn": {2: "replaced by: 3"}, "requests": [3]}, [], RequestOutcome.WAIT, None),
    ],
)
def test_verdicts(status: dict[str, Any], plans: list[pb.Plan], verdict: RequestOutcome, followed: int | None) -> None:
    found, own = judge(3, pb.StatusReply(**status), plans)
    assert (found, own and own.id) == (verdict, followed)
