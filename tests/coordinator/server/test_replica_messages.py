"""What followers need of the messages between the coordinator and its nodes."""

from coordinator.core import effects as ef
from coordinator.core import node_answers as na
from coordinator.core.plans.promotion import Holding, HoldingKind
from coordinator.server.wire import answer_from_pb, directive_to_pb
from elastic_ps.control.codec import config_id_from_pb, configuration_from_pb
from elastic_ps.core.configuration import ConfigId, Configuration, Member, Role
from protos import elastic_pb2 as pb

SERVERS = tuple(Member(name, Role.SERVER, name) for name in ("s0", "s1"))
DECIDED = Configuration(ConfigId(1, 4), (), SERVERS, (0, 1, 0), (1, -1, 1))


def test_adopt_carries_a_decided_configuration_after_a_death_alone():
    message = directive_to_pb(ef.Adopt(DECIDED.id, DECIDED, ((0, 2), (5, 1))), 1, 2).adopt
    assert configuration_from_pb(message.decided) == DECIDED
    assert list(message.promoted) == [0, 2, 5, 1]
    assert not directive_to_pb(ef.Adopt(DECIDED.id), 1, 2).adopt.HasField("decided")


def test_extend_names_followers():
    message = directive_to_pb(ef.Extend(DECIDED.id, (), (0, 1, 0), (), None, (1, -1, 1)), 1, 0).extend
    assert list(message.followers) == [1, -1, 1]
    assert config_id_from_pb(message.configuration) == DECIDED.id


def test_holdings_are_read():
    request = pb.AcknowledgeRequest(
        caller=pb.Caller(node="s1", term=1),
        answer=pb.PREPARED,
        configuration=pb.ConfigId(term=1, number=4),
        holdings=[
            pb.Holding(kind=pb.Holding.OWNED, version=7, runs=[0, 2, 5, 1]),
            pb.Holding(version=7, runs=[2, 1]),  # of a later program
        ],
    )
    told = answer_from_pb(request, 3.0)
    assert told == na.Prepared(3.0, "s1", DECIDED.id, 0, (Holding(HoldingKind.OWNED, 7, ((0, 2), (5, 1))),))


def test_followed_is_an_answer():
    request = pb.AcknowledgeRequest(
        caller=pb.Caller(node="s1", term=1), answer=pb.FOLLOWED, configuration=pb.ConfigId(term=1, number=4)
    )
    assert answer_from_pb(request, 3.0) == na.Followed(3.0, "s1", DECIDED.id)
