"""A script goes on with values that it has read in a server's memory when it is certain that they were the job's."""

import threading
import time
from types import SimpleNamespace

import pytest

from protos import elastic_pb2 as pb
from tests.elastic_ps.worker.played_server import TIMEOUT
from tests.elastic_ps.worker.worker_harness import ONE, Aside


def step_with_a_server_that_hangs_up(play, asked):
    """The script has pushed its second step, and all of version 2 comes, some of it lent by who has hung up since.

    Args:
        asked: called when the worker wants to report soon.
    """
    play.samples = 24
    running = play.run()
    for version in (1, 2):
        for server, blocks in play.owned():
            server.await_pushes(version - 1, len(blocks))
        if version == 2:  # in its first one it reports anyway
            play.session.reported = asked
            with play.node.changed:
                play.node.inbox.arrived(2, [], lender=SimpleNamespace(is_lending=False))
        for server, blocks in play.owned():
            server.answer(version, blocks, ONE)
    return running


def test_a_worker_that_was_expelled_does_not_go_on_with_what_was_written_over(scripted):
    """Found by the simulated world: frozen before it read the values, it came back when they were others'."""
    running = step_with_a_server_that_hangs_up(scripted, lambda: scripted.node.on_expelled("expelled"))
    with pytest.raises(SystemExit):
        running.result()
    assert [step for step, _ in scripted.yielded] == [0, 0, 1], "its rehearsal, and two steps"


def test_a_worker_whose_server_has_died_goes_on_when_its_coordinator_knows_it(scripted):
    node, asked = scripted.node, []

    def answer():
        asked.append(node.report())
        node.reported(pb.ReportReply(), asked[-1])

    step_with_a_server_that_hangs_up(scripted, answer)
    for server, blocks in scripted.owned():
        server.await_pushes(2, len(blocks))
    assert asked


def test_an_answer_to_a_report_of_before_tells_nothing(play):
    play.start([0, 0, 1, 1, 1, 1])
    node, lender, asked = play.node, SimpleNamespace(is_lending=False), threading.Event()
    node.inbox.arrived(0, [], lender=lender)
    play.session.reported = asked.set
    under_way = node.report()
    running = Aside(node.confirm_values)
    assert asked.wait(TIMEOUT)
    node.reported(pb.ReportReply(), under_way)
    time.sleep(0.05)
    assert not running.ended
    node.reported(pb.ReportReply(), node.report())
    running.result()
    asked.clear()
    lender.is_lending = True
    node.confirm_values()
    assert not asked.is_set(), "nothing is in doubt"
