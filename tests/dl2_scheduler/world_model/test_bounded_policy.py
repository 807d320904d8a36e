"""Policies that simulated futures ask."""

from dl2_scheduler.cluster.snapshot import Allocation
from dl2_scheduler.live.deadline import Bounded
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.world_model.bounded_policy import make_bounded_policy


class Own:
    def allocate(self, snapshot, room):
        return Allocation()


def test_somebodys_own_policy_has_to_answer_in_time():
    assert isinstance(make_bounded_policy(f"{__name__}:Own"), Bounded)
    assert isinstance(make_bounded_policy("drf"), Drf)
