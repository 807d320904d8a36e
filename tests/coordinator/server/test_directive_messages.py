"""A directive that says the same to all nodes is encoded once: it may hold thousands of tensors."""

import pytest

from coordinator.core.effects import Extend, Welcome
from coordinator.server.wire import directive_to_pb
from tests.coordinator.played_job import DATA, TENSORS, World


def encoded(world, kind, count):
    """The messages of the directives of a kind that have been sent to `count` nodes."""
    found = [directive_to_pb(directive, 1, 0) for directive in world.sent(kind)]
    assert len(found) == count
    return found


@pytest.fixture
def world():
    world = World(workers=3, servers=2, declare=False)
    world.settle()
    world.effects.clear()
    return world


def test_what_a_script_declares_is_encoded_once_for_all_nodes(world):
    world.declare(world.node("w0"), TENSORS, DATA)
    first, *others = encoded(world, Extend, 5)
    assert len(first.extend.tensors) == len(TENSORS)
    assert all(message is first for message in others)


def test_a_model_that_grows_again_is_encoded_again(world):
    for count in (1, 2):
        world.effects.clear()
        world.declare(world.node("w0"), TENSORS[:count], DATA)
        world.settle()
        assert [len(message.extend.tensors) for message in encoded(world, Extend, 5)] == [count] * 5


def test_all_nodes_that_come_back_at_once_are_welcomed_by_one_message(world):
    for node in world.alive:
        node.connected = False
        world.listen(node)
    first, *others = encoded(world, Welcome, 5)
    assert all(message is first for message in others)
