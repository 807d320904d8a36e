"""Streams to workers that join begin, end and go over to another plan at any moment."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from elastic_ps.core.configuration import ConfigId  # noqa: E402
from elastic_ps.torch.allreduce.agreement import LACKS  # noqa: E402
from elastic_ps.torch.allreduce.following.follow_stream import RECORD  # noqa: E402
from elastic_ps.torch.allreduce.following.shadow_feed import ShadowFeed, ShadowFeeds  # noqa: E402
from elastic_ps.torch.allreduce.following.shadow_follower import ShadowFollower, _Arrival  # noqa: E402
from elastic_ps.torch.allreduce.group_state import GroupState  # noqa: E402
from protos import elastic_pb2 as pb  # noqa: E402


class Connection:
    """A connection to a shadow, by a plan."""

    is_open = True

    def __init__(self, number: int):
        self.number = ConfigId(1, number)
        self.submitted, self.closed = 0, False

    def submit(self, body):
        self.submitted += 1

    def close(self):
        self.closed = True


def feeding():
    made: list[ShadowFeed] = []
    feeds = ShadowFeeds()

    def make(shadow):
        made.append(ShadowFeed(shadow, SimpleNamespace(), dict, lambda: 0, feeds))
        return made[-1]

    return feeds, make, made


@pytest.mark.parametrize("replica", ["there", "not there yet"])
def test_a_connection_of_an_earlier_plan_that_comes_late_does_not_end_the_later_plans_stream(replica):
    feeds, make, made = feeding()
    first, second = Connection(2), Connection(3)
    if replica == "there":
        feeds.begin(make)
    feeds.meet("w2", second)
    feeds.meet("w2", first)
    feeds.begin(make)
    assert [feed.over for feed in made] == [False]
    assert (first.submitted, first.closed, second.submitted) == (0, True, 1)


def test_a_later_plans_connection_ends_the_stream_of_the_earlier_one():
    feeds, make, made = feeding()
    feeds.begin(make)
    for number in (2, 3):
        feeds.meet("w2", Connection(number))
    assert [feed.over for feed in made] == [True, False]


class Welcomed(GroupState):
    """A worker of version 5, which a Welcome has hold nothing as soon as it has looked once and has no lock."""

    looks = 0

    @property
    def held(self):
        self.looks += 1
        return 5 if self.looks == 1 or self.changed._is_owned() else LACKS

    @held.setter
    def held(self, version):
        pass


def test_a_welcome_between_two_looks_ends_nobody():
    """A worker that followed died of "a record of version 5 has come to version -2"."""
    node = Welcomed(SimpleNamespace(node="w2"), None)
    replica = SimpleNamespace(set_statistics=lambda values: None)
    told = {"kind": RECORD, "version": 5, "behind": 9, "entry": pb.LedgerEntry().SerializeToString().hex()}
    ShadowFollower(node, SimpleNamespace(), replica)._apply(_Arrival(told, values={}), SimpleNamespace())
    assert len(node.ledger.entries) == 1
