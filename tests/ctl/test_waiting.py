"""Patience with a coordinator that is away, and with a plan that is cancelled."""

import pytest

from coordinator import waiting
from coordinator.client import CoordinatorUnreachable
from coordinator.waiting import Patience, Request, Verdict, judge, wait_for_plan
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


def verdict(phase: str, newest: int = 7, queued: bool = False, in_queue: str = "", wanted: bool = True) -> Verdict:
    request = Request(6, queued, lambda status: wanted)
    return judge(request, pb.StatusReply(queued=in_queue), pb.Plan(id=7, phase=phase), newest)


@pytest.mark.parametrize("phase", ["REGISTERED", "ASSIGNED", "SYNCING", "ARMED"])
def test_a_plan_under_way_is_waited_for(phase: str) -> None:
    assert verdict(phase) is Verdict.WAIT


def test_verdicts_on_ended_plans() -> None:
    assert verdict("COMMITTED") is Verdict.DONE
    assert verdict("COMMITTED", in_queue="somebody else's") is Verdict.DONE
    assert verdict("COMMITTED", queued=True, in_queue="ours") is Verdict.NEXT
    assert verdict("CANCELLED") is Verdict.MAYBE
    assert verdict("CANCELLED", newest=8) is Verdict.NEXT
    assert verdict("CANCELLED", newest=8, wanted=False) is Verdict.DONE
    assert judge(Request(6, False, lambda status: True), pb.StatusReply(), None, 6) is Verdict.WAIT


class Cancelled:
    """A client whose job wants a plan that stays cancelled."""

    def status(self) -> pb.StatusReply:
        return pb.StatusReply(phase="running")

    def plans(self) -> list[pb.Plan]:
        return [pb.Plan(id=7, phase="CANCELLED", reason="w3 died")]


def test_a_cancelled_plan_that_nobody_takes_up_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "TAKEN_UP_SECONDS", 0.05)
    told: list[pb.Plan] = []
    plan = wait_for_plan(Cancelled(), Request(6, False, lambda status: True), told.append)  # type: ignore[arg-type]
    assert (plan.phase, [seen.reason for seen in told]) == ("CANCELLED", ["w3 died"])
