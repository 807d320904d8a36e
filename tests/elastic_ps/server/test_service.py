"""A server's life: how it ends, and what scripts command."""

import sys
import threading
from collections.abc import Callable
from types import ModuleType

import pytest

from elastic_ps.core.errors import PeerLost, ProtocolError
from elastic_ps.core.model import Tensor
from elastic_ps.core.module_file import ModuleFile
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.core.segments import Array
from elastic_ps.optimizers import Rule
from elastic_ps.optimizers.gradient_sum import DType
from elastic_ps.optimizers.user_rule import OwnRule
from elastic_ps.server.connections import EXCHANGE
from elastic_ps.server.optimizer_trials import OptimizerTrials
from elastic_ps.server.phases import BlockStatus
from elastic_ps.server.service import ServerNode
from elastic_ps.server.state.held_frames import HeldFrame
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import GoodbyeMeta, HelloMeta
from elastic_ps.transport.frames import Frame
from elastic_ps.transport.tcp import TcpTransport
from protos import elastic_pb2 as pb
from tests.elastic_ps.server.server_harness import TOKEN, Job, Jobs
from tests.elastic_ps.server.server_peers import TIMEOUT, FakeControl
from tests.elastic_ps.server.server_reference import SGD, TENSORS


@pytest.fixture
def job(jobs: Jobs) -> Job:
    made = jobs.keep(Job(TENSORS, SGD))
    made.add_server("s0")
    return made


@pytest.mark.parametrize(
    ("stop", "status"),
    [
        (pb.Stop(reason="finished"), 0),
        (pb.Stop(reason="restored", restart=True), 75),
        (pb.Stop(reason="no checkpoint", failed=True), 1),
    ],
)
def test_exit_statuses(job: Job, stop: pb.Stop, status: int) -> None:
    job.direct("s0", stop=stop)
    assert job.servers["s0"].wait(TIMEOUT) == status
    job.direct("s0", stop=pb.Stop(failed=True))
    assert job.servers["s0"].wait(0) == status  # the first reason stays


def test_joiner_that_is_not_wanted_any_more_ends(job: Job) -> None:
    job.direct("s0", cancel=pb.CancelPlan(configuration=pb.ConfigId(term=1, number=1), leave=True))
    assert job.servers["s0"].wait(TIMEOUT) == 0


def test_expelled_server_ends_with_an_error(job: Job) -> None:
    job.servers["s0"].on_expelled("unknown node")
    assert job.servers["s0"].wait(TIMEOUT) == 1


def test_an_error_of_what_was_held_ends_the_server_and_not_the_connection_that_happened_to_be_idle(job: Job) -> None:
    server = job.servers["s0"]

    def fail() -> None:
        raise MemoryError

    with server.state.changed:
        server.state.held.hold(HeldFrame(fail, "w0", 0), 1)
    server.idle()
    assert server.wait(0) == 1


def test_command_without_a_handler_names_the_way_out(job: Job) -> None:
    job.direct("s0", command=pb.ServerCommand(id=4, head=7, body="x"))
    detail = job.controls["s0"].await_answer(pb.COMMANDED).detail
    assert "--optimizer-module" in detail
    assert "7" in detail


def test_command_runs_the_module_s_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, str]] = []

    def server_command(head: int, body: str) -> None:
        seen.append((head, body))
        if head == 9:
            raise ValueError("no such head")

    module = ModuleType("their_handlers")
    module.server_command = server_command  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "their_handlers", module)
    transport = TcpTransport(TOKEN)
    control = FakeControl()
    node = ServerNode("s0", 512, control, transport, transport.listen("127.0.0.1"), {"h": ModuleFile("their_handlers")})
    for head in (1, 9):
        node.on_directive(pb.Directive(command=pb.ServerCommand(id=head, head=head, body="text")))
    control.await_answers(2)
    assert seen == [(1, "text"), (9, "text")]
    assert control.answers[0].detail == ""
    assert "no such head" in control.answers[1].detail
    node.on_directive(pb.Directive(command=pb.ServerCommand(id=9, head=9, body="text")))
    assert control.answers[2] == control.answers[1], "what has been run is answered again"
    assert len(seen) == 2
    node.close()


def test_a_handler_that_exits_is_answered_for_and_the_next_command_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread would end without a word: the script would wait for ever, and so would each one after it."""
    module = ModuleType("leaving_handlers")
    module.server_command = lambda head, _body: sys.exit(f"no head {head}") if head == 9 else None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "leaving_handlers", module)
    transport = TcpTransport(TOKEN)
    control = FakeControl()
    handlers = {"h": ModuleFile("leaving_handlers")}
    node = ServerNode("s0", 512, control, transport, transport.listen("127.0.0.1"), handlers)
    for head in (9, 1):
        node.on_directive(pb.Directive(command=pb.ServerCommand(id=head, head=head)))
    control.await_answers(2)
    assert ["no head 9" in answer.detail for answer in control.answers] == [True, False]
    node.close()


def test_a_command_that_runs_holds_up_nothing_and_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may = threading.Event(), threading.Event()
    seen: list[int] = []

    def server_command(head: int, body: str) -> None:
        seen.append(head)
        begun.set()
        assert may.wait(TIMEOUT)

    module = ModuleType("slow_handlers")
    module.server_command = server_command  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "slow_handlers", module)
    transport = TcpTransport(TOKEN)
    control = FakeControl()
    node = ServerNode("s0", 512, control, transport, transport.listen("127.0.0.1"), {"h": ModuleFile("slow_handlers")})
    for _ in range(5):
        node.on_directive(pb.Directive(command=pb.ServerCommand(id=4, head=7)))
    assert begun.wait(TIMEOUT)
    node.on_directive(pb.Directive(command=pb.ServerCommand(id=4, head=7)))
    may.set()
    control.await_answers(1)
    node.on_directive(pb.Directive(command=pb.ServerCommand(id=4, head=7)))
    assert seen == [7]
    assert [answer.command for answer in control.answers] == [4, 4]
    node.close()


def test_an_optimizer_is_tried_and_the_server_lives(job: Job) -> None:
    good, bad = SGD.to_json(), OptimizerSpec("their_rules:Mine").to_json()
    for text in (good, bad):
        job.direct("s0", trial=pb.Trial(optimizer=text, dtypes=["float32"]))
    control = job.controls["s0"]
    said = {text: control.await_answer(pb.TRIED, optimizer=text).detail for text in (good, bad)}
    assert said[good] == ""
    assert "--optimizer-module their_rules" in said[bad]
    assert job.servers["s0"].wait(0) is None


def test_a_trial_that_never_ends_is_answered() -> None:
    control = FakeControl()
    begun: list[Callable[[], None]] = []
    OptimizerTrials(control, (), lambda _name, body: begun.append(body), seconds=0.01).begin(
        pb.Trial(optimizer=SGD.to_json())
    )
    assert control.await_answer(pb.TRIED).detail == "its trial has not ended within 0.01 s"
    begun[0]()  # and now it does
    assert len(control.answers) == 1


def test_a_rule_that_fails_is_told_and_ends_the_server(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "elastic_ps.server.blocks.treatments.make_rule", lambda *_: OwnRule("their_rules:Mine", Fails())
    )
    job = jobs.begin(Job(TENSORS, SGD))
    for worker in ("w0", "w1"):
        job.push(worker, 0, job.random_slab())
    told = job.controls["s0"].await_answer(pb.BROKEN)
    assert told.detail == "optimizer 'their_rules:Mine' fails in update 1: ArithmeticError('no')"
    assert job.servers["s0"].wait(TIMEOUT) == 1


def test_tables_that_a_joiner_cannot_run_end_it_with_the_reason(job: Job) -> None:
    joiner = job.add_server("s1", declared=False)
    job.direct("s1", welcome=pb.Welcome(optimizers=[OptimizerSpec("their_rules:Mine").to_json()]))
    assert "start it with --optimizer-module their_rules" in joiner.await_answer(pb.BROKEN).detail
    assert job.servers["s1"].wait(TIMEOUT) == 1


def test_a_welcome_brings_the_extend_that_was_lost_with_the_stream_before(jobs: Jobs) -> None:
    """Where another server dies then, its plan comes before the next Extend, and counts the new blocks as held."""
    job = jobs.begin(Job(TENSORS, SGD), servers=2)
    known = len(job.model.blocks)
    job.tensors = (*TENSORS, Tensor(0, "s:late", (16,), "float32"))
    job.configuration = job.configuration.extended([*job.configuration.assignment, 1])
    for name, status in (("s0", BlockStatus.ABSENT), ("s1", BlockStatus.EMPTY)):
        job.welcome(name)
        state = job.servers[name].state
        assert state.standing.current == job.configuration
        assert state.store.status[known] == status


class Fails(Rule):
    def states(self, dtype: DType) -> tuple[tuple[str, DType], ...]:
        return ()

    def update(self, value: Array, gradient: Array, states: dict[str, Array], count: int, hyper: Hyper) -> None:
        raise ArithmeticError("no")


def test_prepare_before_the_tables_says_what_is_missing(job: Job) -> None:
    message = pb.Prepare()
    message.configuration.id.number = 1
    message.configuration.assignment.extend([0] * 99)
    with pytest.raises(ProtocolError, match="an Extend is missing"):
        job.direct("s0", prepare=message)


def test_key_that_its_optimizer_cannot_update_is_refused_by_name(jobs: Jobs) -> None:
    tensors = (*TENSORS[1:2], type(TENSORS[0])(0, "i:9", (600,), "float32"))
    job = jobs.begin(Job(tensors, OptimizerSpec("lamb")), workers=1)
    job.push("w0", 0, job.random_slab())
    detail = job.workers["w0"].await_kind(Kind.REFUSED).meta.detail
    assert "key 9" in detail
    assert "whole tensors" in detail


def test_only_a_worker_that_says_goodbye_is_not_lost(jobs: Jobs) -> None:
    job = jobs.begin(Job(TENSORS, SGD), workers=2)
    job.workers["w0"].send("s0", Frame(GoodbyeMeta()))
    job.workers["w0"].wait(lambda: not job.servers["s0"].connections.is_connected("w0"))
    job.workers["w1"].close()
    server = job.servers["s0"]
    with server.state.changed:
        assert server.state.changed.wait_for(lambda: server.seen().apart, TIMEOUT)
    assert list(server.seen().apart) == ["w1"]
    assert ("w0", EXCHANGE) not in server._broken, "the log may have what servers of earlier tests say at their end"


def test_peers_of_another_kind_are_turned_away(job: Job) -> None:
    member = job.members["s0"]
    for meta in ({"node": "w0", "lane": "follow"}, {"node": "", "lane": "exchange"}):
        connection = job.transport.connect(member.host, member.port, "s0")
        connection.send(Frame(HelloMeta(role="worker", **meta)))
        with pytest.raises(PeerLost, match=r"closed|reset"):
            connection.receive()
        connection.close()
    with pytest.raises(PeerLost, match="does not know this job's token"):
        TcpTransport(b"x" * len(TOKEN)).connect(member.host, member.port, "s0")
