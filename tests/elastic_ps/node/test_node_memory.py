"""What a node remembers of its job, for a coordinator that has lost its journal."""

from dataclasses import replace

import pytest

from coordinator.core.effects import Welcome
from coordinator.server.wire import directive_to_pb, introduction_from_pb
from elastic_ps.control.codec import config_id_to_pb, configuration_to_pb, data_to_pb, tensor_to_pb
from elastic_ps.core.configuration import ConfigId, Configuration, Member, Role
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.model import Tensor
from elastic_ps.node.node_memory import NodeMemory
from elastic_ps.node.settings import NodeSettings
from elastic_ps.node.standing import Standing
from protos import elastic_pb2 as pb

W0, W1 = Member("w0", Role.WORKER, "h", machine="node-1"), Member("w1", Role.WORKER, "h")
S0 = Member("s0", Role.SERVER, "h", 9, "node-2")
ONE = Configuration(ConfigId(1, 1), (W0,), (S0,), (0, 0))
TWO = Configuration(ConfigId(1, 2), (W0, W1), (S0,), (0, 0))
TENSORS = (Tensor(0, "i:0", (4,), "float32"), Tensor(0, "i:1", (4,), "float32"))
DATA = DataSpec(True, 100, 10)


@pytest.fixture
def memory():
    made = NodeMemory(NodeSettings("c:1", bytes(16), "h", "pod-3.1", machine="node-1"), Role.WORKER, 0)
    made.registered(pb.RegisterReply(node="w0", seed=7, block_bytes=64))
    return made


def told(memory, standing, version=5):
    """As the coordinator reads it."""
    request = pb.ListenRequest(introduction=memory.introduction(standing), version=version)
    request.caller.term, request.caller.node = 3, "w0"
    return introduction_from_pb(pb.ListenRequest.FromString(request.SerializeToString()))


def direct(memory, **kind):
    memory.directed(pb.Directive(term=1, plan=4, **kind))


def test_the_highest_number_of_a_checkpoint_is_remembered(memory):
    numbers = [told(memory, Standing("w0")).saves]
    for kind in (
        {"welcome": pb.Welcome(saves=20)},
        {"save": pb.Save(clock=21, url="/ck")},
        {"welcome": pb.Welcome(saves=20)},
    ):
        direct(memory, **kind)
        numbers.append(told(memory, Standing("w0")).saves)
    assert numbers == [0, 20, 21, 21]


def test_what_a_job_began_from_and_when_is_remembered(memory):
    """Else its checkpoints could not be told from those of its identity that were given up before."""
    memory.directed(directive_to_pb(Welcome(None, (), (), None, "run1", "/ck/version-100-run1", 0, 1.5e9), 1, 0))
    known = told(memory, Standing("w0"))
    assert (known.identity, known.begun, known.since) == ("run1", "/ck/version-100-run1", 1.5e9)


def test_all_that_a_node_knows_arrives(memory):
    tensors = [tensor_to_pb(tensor) for tensor in TENSORS]
    direct(
        memory,
        extend=pb.Extend(tensors=tensors, assignment=(0, 0), optimizers=['{"name":"sgd"}'], data=data_to_pb(DATA)),
    )
    memory.passed(12, 1)
    standing = Standing("w0", ONE, TWO, 40, dead=frozenset({"w7"}), cancelled=ConfigId(1, 9))
    standing = replace(standing, promoted=((0, 2), (5, 1)), before=ONE, undecided=True)
    found = told(memory, standing)
    assert (found.member, found.nonce, found.term, found.version) == (W0, "pod-3.1", 3, 5)
    assert (found.current, found.prepared, found.clock) == (ONE, TWO, 40)
    assert (found.dead, found.cancelled, found.plan, found.passed) == ({"w7"}, (1, 9), 4, (12, 1))
    assert (found.promoted, found.before, found.undecided) == (((0, 2), (5, 1)), ONE, True)
    assert (found.tensors, found.optimizers, found.data) == (TENSORS, ('{"name":"sgd"}',), DATA)
    assert (found.seed, found.block_bytes, found.local_update) == (7, 64, False)


def test_who_knows_little_says_little(memory):
    found = told(memory, Standing("w0"))
    assert (found.current, found.prepared, found.clock, found.data) == (None, None, None, None)
    assert (found.dead, found.tensors, found.passed) == (frozenset(), (), (-1, -1))
    assert found.waits


def test_an_answer_that_is_older_than_an_extend_takes_nothing_away(memory):
    both, one = [tensor_to_pb(tensor) for tensor in TENSORS], [tensor_to_pb(TENSORS[0])]
    direct(memory, extend=pb.Extend(tensors=both))
    memory.declared(pb.DeclareRequest(local_update=True), pb.DeclareReply(tensors=one))
    found = told(memory, Standing("w0", ONE))
    assert (found.tensors, found.local_update) == (TENSORS, True)


def test_who_was_to_prepare_a_table_without_itself_leaves(memory):
    without = replace(TWO, workers=(W1,))
    for table, leaves in ((TWO, False), (without, True), (TWO, False)):
        direct(memory, prepare=pb.Prepare(configuration=configuration_to_pb(table)))
        assert told(memory, Standing("w0", table)).has_left is leaves


def test_a_pause_is_told_until_it_is_over(memory):
    standing = Standing("w0", ONE, TWO, paused=True)
    assert told(memory, standing).paused
    assert told(memory, standing.switch()).paused
    direct(memory, resume=pb.Resume(configuration=config_id_to_pb(TWO.id)))
    assert not told(memory, standing.switch()).paused
    assert told(memory, standing).paused, "the next one"


@pytest.mark.parametrize("name", ["", "s0", "w", "w1x", "x1"])
def test_a_name_that_is_none_of_its_role_is_refused(memory, name):
    request = pb.ListenRequest(introduction=memory.introduction(Standing("w0")))
    request.caller.node = name
    with pytest.raises(ConfigurationError, match="no name of a node"):
        introduction_from_pb(request)


@pytest.mark.parametrize("which", ["current", "prepared", "before"])
def test_a_configuration_whose_member_has_no_role_is_refused(memory, which):
    request = pb.ListenRequest(introduction=memory.introduction(Standing("w0")))
    request.caller.node = "w0"
    getattr(request.introduction, which).workers.add(id="w0")
    with pytest.raises(ConfigurationError, match="'w0' is neither a worker nor a server"):
        introduction_from_pb(request)
