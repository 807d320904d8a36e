"""Policies that simulated futures ask."""

import pytest

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot
from dl2_scheduler.live import deadline
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.world_model.bounded_policy import make_bounded_policy

SNAPSHOT = Snapshot(0, 1.0, (Node("node-0", {"slots": 4.0}),), ())
ROOM = FreeResources(SNAPSHOT)


class Talking:
    def __init__(self):
        print("is made")

    def allocate(self, snapshot, room):
        print("is asked")
        return Allocation()


class Endless:
    def allocate(self, snapshot, room):
        while True:
            pass


def test_our_own_policies_are_as_they_are():
    assert isinstance(make_bounded_policy("drf"), Drf)


def test_what_somebodys_own_policy_prints_is_no_answer(capsys):
    assert make_bounded_policy(f"{__name__}:Talking").allocate(SNAPSHOT, ROOM) == Allocation()
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "is made\nis asked\n")


def test_somebodys_own_policy_has_to_answer_in_time(monkeypatch):
    monkeypatch.setattr(deadline.Bounded.__init__, "__defaults__", (0.05,))
    with pytest.raises(TimeoutError, match=r"no answer after 0\.05 s"):
        make_bounded_policy(f"{__name__}:Endless").allocate(SNAPSHOT, ROOM)
