import threading
from types import SimpleNamespace

import pytest

from elastic_ps.core.data_order import DataSpec, Place
from elastic_ps.core.errors import JobEnded
from elastic_ps.worker.script.data_position import ClockedPosition, DrawnPosition, position_of
from protos import elastic_pb2 as pb
from tests.elastic_ps.worker.worker_harness import roster_of

SPEC = DataSpec(True, 22, 8, exchanges=2, consistency="async")  # steps of 8, 8 and 6


class Node:
    """What a course needs of a worker; `answers` are those of the coordinator to its draws, in order."""

    def __init__(self, *answers, seed=7):
        self.changed = threading.RLock()
        self.session = self
        self.node = "w1"
        self.seed, self.version = seed, 5
        self.configuration = roster_of("w0", "w1", "w2")
        self.asked = []
        self.ended = False
        self._answers = list(answers)

    def ask_coordinator(self, request):
        return request()

    def check(self):
        if self.ended:
            raise JobEnded("drained", 0)

    def draw(self, number, epoch, any_epoch=False):
        self.asked.append((number, epoch, any_epoch))
        return self._answers.pop(0)


def given(step, origin="w1", batch=0, epoch=3):
    return pb.DrawReply(epoch=epoch, step=step, origin=origin, batch=batch)


def test_the_consistency_says_which_course():
    node = SimpleNamespace()
    assert isinstance(position_of(node, DataSpec(True, 9, 3)), ClockedPosition)
    assert isinstance(position_of(node, DataSpec(True, 9, 3, consistency="async")), DrawnPosition)
    assert isinstance(position_of(node, DataSpec(True, 9, 3, consistency="ssp", staleness=1)), DrawnPosition)


def test_a_drawn_step_is_this_workers_alone_and_named_by_who_drew_it_first():
    drawn = DrawnPosition(Node(given(2, origin="w0", batch=4)), SPEC)
    part = drawn.begin(3)
    assert (part.place, part.positions, part.roster) == (Place(3, 2), range(16, 22), None)
    assert [part.number(exchange) for exchange in (0, 1)] == [("w0", 8), ("w0", 9)]
    assert part.slice(1) == (3, 2, 1, 16, 22)
    assert drawn.upcoming(part.place, 4) == []


def test_whoever_does_a_batch_has_the_same_seed_for_it():
    first, other = (DrawnPosition(node, SPEC) for node in (Node(given(1), given(2)), Node(given(1, origin="w1"))))
    seed = first.begin(3).seed
    first._node.version += 2
    assert seed == other.begin(3).seed != first.begin(3).seed
    assert DrawnPosition(Node(given(1), seed=8), SPEC).begin(3).seed != seed


def test_the_next_draw_comes_when_all_exchanges_are_made():
    node = Node(given(0), given(1, batch=1))
    drawn = DrawnPosition(node, SPEC)
    assert drawn.done == 0
    part = drawn.begin(3)
    node.version += 1
    assert drawn.done == 1
    assert drawn.begin(3) is part  # the script has left the loop in the middle of its step, and comes back
    node.version += 1
    assert drawn.begin(3).place.step == 1
    assert drawn.done == 0
    assert node.asked == [(1, 3, False), (2, 3, False)]


def test_a_loop_ends_with_its_epoch_and_the_next_is_the_one_that_was_told():
    node = Node(given(0), pb.DrawReply(epoch=5, over=True), given(0, epoch=5))
    drawn = DrawnPosition(node, SPEC)
    drawn.begin(3)
    node.version += 2
    assert drawn.begin(3) is None
    assert (drawn.epoch, drawn.done) == (5, 0)
    assert drawn.begin(5).place == Place(5, 0)
    assert [number for number, _epoch, _any in node.asked] == [1, 2, 3]


def test_who_comes_asks_once_which_epoch_the_job_is_in():
    node = Node(pb.DrawReply(epoch=3), pb.DrawReply(epoch=4, over=True))
    drawn = DrawnPosition(node, SPEC)
    assert (drawn.epoch, drawn.epoch) == (3, 3)
    assert drawn.begin(drawn.epoch) is None  # it was over before this worker had rehearsed
    assert node.asked == [(0, 0, True), (1, 3, False)]
    assert drawn.epoch == 4


def test_who_has_left_the_job_draws_nothing():
    node = Node(given(0))
    node.ended = True
    with pytest.raises(JobEnded, match="drained"):
        DrawnPosition(node, SPEC).begin(3)
    assert node.asked == []


def test_a_clocked_step_is_divided_and_ends_with_its_epoch():
    node = Node()
    clocked = ClockedPosition(node, DataSpec(True, 22, 8, exchanges=2))
    part = clocked.begin(0)  # version 5: step 2, exchange 1
    assert (clocked.epoch, clocked.done) == (0, 1)
    assert (part.place, part.positions, part.roster) == (Place(0, 2, 1), range(18, 20), ("w0", "w1", "w2"))
    assert (part.slice(1), part.number(1)) == ((0, 2, 1, 18, 20), None)
    assert clocked.upcoming(Place(0, 0), 4) == [range(11, 14), range(18, 20)]
    node.version = 6
    assert clocked.begin(0) is None
    assert clocked.begin(1).place == Place(1, 0)
