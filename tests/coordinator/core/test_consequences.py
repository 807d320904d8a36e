"""Nobody is told anything where nothing has changed that says what is to be told."""

from coordinator.core import events as ev
from coordinator.core.consequences import same_orders
from coordinator.core.directives import standing
from coordinator.core.state import State
from tests.coordinator.played_job import World


def read_of(state, function):
    """Return the fields of a state that a function reads."""
    read = set()

    class Read(State):
        def __getattribute__(self, name):
            if name in State.__dataclass_fields__:
                read.add(name)
            return super().__getattribute__(name)

    seen = object.__new__(Read)
    vars(seen).update(vars(state))
    function(seen)
    return read


class Observed(World):
    """A world that knows which fields of its states have said what its nodes are to be told."""

    def __init__(self, *counts):
        self.read = set()
        super().__init__(*counts)

    def post(self, event):
        super().post(event)
        self.read |= read_of(self.state, lambda state: [standing(state, name) for name in state.job.nodes])


def test_what_orders_depend_on_is_compared():
    world = Observed(2, 2)
    world.ask(ev.ScaleAsked, 3, 3)
    world.settle()
    assert {"job", "answers", "saving", "running", "trials", "extended", "welcomed"} <= world.read
    assert world.read <= read_of(world.state, lambda state: same_orders(state, state))
