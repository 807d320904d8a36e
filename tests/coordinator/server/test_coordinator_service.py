"""The whole coordinator over loopback gRPC, with scripted nodes."""

import asyncio
import threading
from contextlib import suppress

import grpc
import pytest
from google.protobuf.json_format import MessageToDict

from coordinator.core import events as ev
from coordinator.core.job import DurableJob
from coordinator.core.plans.scale_goal import ScaleGoal
from coordinator.core.state import CoordinatorSettings, State
from coordinator.server import runtime
from coordinator.server.admission import make_server, stop_server
from coordinator.server.journal import Journal
from coordinator.server.ledger_files import Ledger, Steps
from coordinator.server.runtime import Runtime
from coordinator.server.service import CoordinatorService
from elastic_ps.core.configuration import Role
from elastic_ps.core.errors import JobEnded
from elastic_ps.core.model import Model
from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.node.session import Session
from elastic_ps.node.settings import NodeSettings
from protos import elastic_pb2 as pb
from protos import elastic_pb2_grpc as rpc
from tests.coordinator.token_channel import showing

TOKEN = bytes(range(16))


class Served:
    """A coordinator in a thread with a loop of its own."""

    def __init__(self, folder, workers=1, servers=1, port=0, term=0):
        self.folder, self.job = folder, DurableJob(ScaleGoal(workers, servers), seed=3, model=Model(block_bytes=64))
        self._ready, self._stop = threading.Event(), None
        self._port, self._term = port, term
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="coordinator")
        self._thread.start()
        assert self._ready.wait(20)

    async def _serve(self):
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        journal = Journal(self.folder / "journal.sqlite")
        kept = journal.load()
        settings = CoordinatorSettings(settle=0.0, lease=30.0)
        state = State(settings, *kept) if kept else State(settings, self.job)
        ledger, steps = Ledger(self.folder / "ledger.jsonl"), Steps(self.folder / "steps.jsonl")
        self.runtime = Runtime(state, journal)
        server = make_server(TOKEN)
        rpc.add_CoordinatorServicer_to_server(CoordinatorService(self.runtime, ledger, steps), server)
        self.port = server.add_insecure_port(f"127.0.0.1:{self._port}")
        self.runtime.start(self._term)
        await server.start()
        self._ready.set()
        loading = asyncio.create_task(asyncio.to_thread(ledger.load))
        await self._stop.wait()
        await loading
        await self.runtime.close()
        await stop_server(server, 0.2)
        for file in (journal, ledger, steps):
            file.close()

    def close(self):
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)


class RegisteredNode(threading.Thread):
    """A scripted node: answers every directive at once, as an honest one would."""

    def __init__(self, port, kind, nonce, is_reached=False):
        super().__init__(name=nonce, daemon=True)
        self.channel = showing(grpc.insecure_channel(f"127.0.0.1:{port}"), TOKEN)
        self.stub = rpc.CoordinatorStub(self.channel)
        is_reached |= kind == pb.INC_SERVER
        self.reply = self.stub.Register(
            pb.RegisterRequest(caller=self.caller, kind=kind, host="127.0.0.1", port=9 * is_reached, nonce=nonce),
            timeout=10,
        )
        self.id = self.reply.node
        self.seen: list[str] = []
        self.version = 0
        self.changed = threading.Condition()
        self.start()

    id = ""

    @property
    def caller(self):
        return pb.Caller(node=self.id)

    def run(self):
        with suppress(grpc.RpcError):
            role = pb.SERVER if self.id.startswith("s") else pb.WORKER
            told = pb.Introduction(role=role, nonce=self.name)
            for directive in self.stub.Listen(pb.ListenRequest(caller=self.caller, introduction=told)):
                self.handle(directive)
                with self.changed:
                    self.seen.append(directive.WhichOneof("kind"))
                    self.changed.notify_all()

    def handle(self, directive):
        kind = directive.WhichOneof("kind")
        if kind == "prepare":
            self.acknowledge(pb.PREPARED, directive.prepare.configuration.id)
            self.acknowledge(pb.SYNCED, directive.prepare.configuration.id)
        elif kind == "arm":
            self.version = directive.arm.clock
            self.acknowledge(pb.SWITCHED, directive.arm.configuration, suspension_ms=2.5, bytes_moved=11)
            if self.id.startswith("s"):
                self.acknowledge(pb.ARRIVED, directive.arm.configuration)
            self.report(self.version + 1)
        elif kind == "adopt":
            self.acknowledge(pb.SWITCHED, directive.adopt.configuration)
            self.report(self.version + 1)
        elif kind == "extend":
            self.acknowledge(pb.EXTENDED, growth=directive.extend.growth)
        elif kind == "trial":
            self.acknowledge(pb.TRIED, optimizer=directive.trial.optimizer)

    def acknowledge(self, answer, configuration=None, **named):
        request = pb.AcknowledgeRequest(caller=self.caller, answer=answer, version=self.version, **named)
        if configuration is not None:
            request.configuration.CopyFrom(configuration)
        self.stub.Acknowledge(request, timeout=10)

    def report(self, version=0, **named):
        return self.stub.Report(pb.ReportRequest(caller=self.caller, version=version, **named), timeout=10)

    def wait_for(self, kind):
        with self.changed:
            assert self.changed.wait_for(lambda: kind in self.seen, 10), f"{self.id} has seen {self.seen}"


@pytest.fixture
def served(tmp_path):
    coordinator = Served(tmp_path)
    yield coordinator
    coordinator.close()


@pytest.fixture
def operator(served):
    with grpc.insecure_channel(f"127.0.0.1:{served.port}") as channel:
        yield rpc.CoordinatorStub(showing(channel, TOKEN))


def start(served, consistency="sync"):
    nodes = [RegisteredNode(served.port, pb.INC_WORKER, "n0"), RegisteredNode(served.port, pb.INC_SERVER, "n1")]
    for node in nodes:
        node.wait_for("committed")
    request = pb.DeclareRequest(
        caller=nodes[0].caller,
        tensors=[pb.Tensor(key=f"i:{n}", shape=[16], dtype="float32", divisible=True) for n in range(8)],
        optimizer=OptimizerSpec("sgd").to_json(),
        data=pb.DataSpec(
            elastic=True, samples=100, global_batch=10, last="short", loss="sum", exchanges=1, consistency=consistency
        ),
    )
    reply = nodes[0].stub.Declare(request, timeout=10)
    assert list(reply.assignment) == [0] * 8
    return nodes


def test_start_declare_and_scale(served, operator):
    nodes = start(served)
    launcher = operator.Attach(pb.AttachRequest())
    assert next(launcher).nodes == ["w0", "s0"]
    reply = operator.Scale(pb.ScaleRequest(workers=2, servers=2, wait_in_queue=True), timeout=10)
    assert reply.plan == 2
    wanted = next(message for message in launcher if message.starting_workers)
    assert (wanted.starting_workers, wanted.starting_servers) == (1, 1)
    nodes += [RegisteredNode(served.port, pb.INC_WORKER, "n2"), RegisteredNode(served.port, pb.INC_SERVER, "n3")]
    assert all(node.reply.started for node in nodes[2:])
    for node in nodes[2:]:
        node.wait_for("committed")
    plan = operator.Plans(pb.PlansRequest(), timeout=10).plans[-1]
    assert (plan.phase, sorted(plan.joined)) == ("COMMITTED", ["s1", "w1"])
    assert len(plan.steps_ms) == 4
    assert plan.bytes_moved >= 11
    status = operator.Status(pb.StatusRequest(), timeout=10)
    assert [(n.member.id, n.rank, n.state) for n in status.nodes] == [
        ("w0", 0, "member"),
        ("s0", 0, "member"),
        ("w1", 1, "member"),
        ("s1", 1, "member"),
    ]
    assert sum(node.bytes for node in status.nodes if node.member.role == pb.SERVER) == status.bytes == 512
    assert MessageToDict(status)["data"]["elastic"]
    launcher.cancel()


def test_operators_see_which_machine_a_node_runs_on(served, operator):
    request = pb.RegisterRequest(kind=pb.INC_SERVER, host="10.0.0.7", port=9, nonce="n0", machine="node-1")
    operator.Register(request, timeout=10)
    (node,) = operator.Status(pb.StatusRequest(), timeout=10).nodes
    assert (node.member.host, node.member.machine) == ("10.0.0.7", "node-1")


def test_which_node_may_call(served, operator):
    for caller, code in (
        (pb.Caller(term=99), grpc.StatusCode.UNAVAILABLE),
        (pb.Caller(node="w7"), grpc.StatusCode.NOT_FOUND),
    ):
        with pytest.raises(grpc.RpcError) as error:
            operator.Report(pb.ReportRequest(caller=caller), timeout=10)
        assert error.value.code() is code


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (pb.RegisterRequest(nonce="n"), "INC_ or DEC_"),
        (pb.RegisterRequest(kind=pb.INC_WORKER), "needs a nonce"),
        (pb.RegisterRequest(kind=pb.INC_SERVER, nonce="n"), "port of its data plane"),
    ],
)
def test_bad_registrations_say_what_is_wrong(operator, request_, says):
    with pytest.raises(grpc.RpcError, match=says) as error:
        operator.Register(request_, timeout=10)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_launcher_learns_whether_a_process_that_has_ended_had_registered(served, operator):
    RegisteredNode(served.port, pb.INC_SERVER, "registered")
    told = [
        operator.NodeExited(pb.NodeExitedRequest(nonce=nonce, status=0)).known for nonce in ("registered", "stranger")
    ]
    assert told == [True, False]


def test_bad_declarations_say_what_is_wrong(served, operator):
    node = start(served)[0]
    for tensor, says in (
        (pb.Tensor(key="i:9", shape=[4], dtype="float33"), "not one of numpy's"),
        (pb.Tensor(key="i:9", shape=[-4], dtype="float32"), "not a tensor"),
        (pb.Tensor(key="i:0", shape=[4], dtype="float32"), "the job holds it as"),
    ):
        with pytest.raises(grpc.RpcError, match=says) as error:
            operator.Declare(pb.DeclareRequest(caller=node.caller, tensors=[tensor]), timeout=10)
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_draws_are_answered_again_after_a_restart(served, operator, tmp_path):
    worker = start(served, "async")[0]
    drawn = [worker.stub.Draw(pb.DrawRequest(caller=worker.caller, number=n), timeout=10) for n in (1, 2)]
    assert [(reply.step, reply.origin, reply.batch) for reply in drawn] == [(0, "w0", 0), (1, "w0", 1)]
    status = operator.Status(pb.StatusRequest(), timeout=10)
    assert (status.epoch, status.step) == (0, 1)
    served.close()
    again = Served(tmp_path, port=served.port)
    try:
        request = pb.DrawRequest(caller=worker.caller, number=2)
        reply = worker.stub.Draw(request, timeout=10, wait_for_ready=True)
        assert reply.term == 2
        assert (reply.step, reply.origin, reply.batch) == (1, "w0", 1)
    finally:
        again.close()


def test_a_draw_that_waits_is_answered_when_the_job_ends(served, operator):
    worker = start(served, "async")[0]
    for number in range(1, 11):  # it holds the epoch's last batch
        worker.stub.Draw(pb.DrawRequest(caller=worker.caller, number=number), timeout=10)
    other = RegisteredNode(served.port, pb.INC_WORKER, "n2")
    waiting = other.stub.Draw.future(pb.DrawRequest(caller=other.caller, number=1), timeout=10)
    operator.Stop(pb.StopRequest(now=True), timeout=10)
    assert waiting.code() is grpc.StatusCode.ABORTED


def test_who_comes_when_the_job_has_ended_hears_one_line(served, operator):
    operator.Stop(pb.StopRequest(now=True, reason="stopped by SIGINT"), timeout=10)
    session = Session(NodeSettings(f"127.0.0.1:{served.port}", TOKEN, nonce="late"), Role.WORKER)
    with pytest.raises(JobEnded, match="cannot join: the job has ended: stopped by SIGINT") as refused:
        session.register()
    session.close()
    assert refused.value.status == 1
    assert refused.value.__suppress_context__, "no traceback of gRPC's beside it"


def test_a_sync_job_has_no_batches_to_draw(served, operator):
    worker = start(served)[0]
    with pytest.raises(grpc.RpcError, match="this job is sync") as error:
        worker.stub.Draw(pb.DrawRequest(caller=worker.caller, number=1), timeout=10)
    assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_the_ledger_is_acknowledged_and_read(served, operator):
    server = start(served)[1]
    entries = [pb.LedgerEntry(term=1, number=1, version=v, runs=[0, 8]) for v in range(3)]
    assert server.report(ledger=entries, ledger_sequence=0).ledger_kept == 3
    assert [e.version for e in operator.Ledger(pb.LedgerRequest())] == [0, 1, 2]


def test_who_reports_is_told_of_a_group_of_workers_that_has_failed(tmp_path):
    coordinator = Served(tmp_path, workers=2, servers=0)
    try:
        nodes = [RegisteredNode(coordinator.port, pb.INC_WORKER, f"n{number}", True) for number in range(2)]
        assert not nodes[1].report().attempt
        group = pb.ConfigId(term=1, number=1)
        nodes[0].report(group=group, attempt=2)
        reply = nodes[1].report()
        assert (reply.group, reply.attempt) == (group, 2)
    finally:
        coordinator.close()


def test_a_node_reports_no_ledger_but_its_own(served, operator):
    """It would hide all that the other one tells."""
    worker, server = start(served)
    with pytest.raises(grpc.RpcError) as refused:
        worker.report(ledger=[pb.LedgerEntry(version=9)], ledger_sequence=9, ledger_of=server.id)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "is not its own" in refused.value.details()
    assert server.report(ledger=[pb.LedgerEntry(version=0, runs=[0, 1])], ledger_sequence=0).ledger_kept == 1


def test_the_job_is_decided_about_while_its_ledger_is_read(tmp_path, monkeypatch):
    asked, may = threading.Event(), threading.Event()
    load = Ledger.load

    def slowly(ledger):
        asked.set()
        assert may.wait(20)
        load(ledger)

    monkeypatch.setattr(Ledger, "load", slowly)
    served = Served(tmp_path)
    try:
        assert asked.wait(20)
        server = start(served)[1]  # a plan is committed
        entries = [pb.LedgerEntry(term=1, number=1, version=v, runs=[0, 8]) for v in range(3)]
        assert server.report(ledger=entries).ledger_kept == 0, "it keeps them, and sends them again"
        may.set()
        while server.report(ledger=entries).ledger_kept != 3:
            pass
    finally:
        may.set()
        served.close()


def test_a_restart_resumes_with_a_higher_term_on_the_same_port(served, operator, tmp_path):
    start(served)
    served.close()
    again = Served(tmp_path, port=served.port)
    try:
        status = operator.Status(pb.StatusRequest(), timeout=10, wait_for_ready=True)
        assert status.term == 2
        assert status.configuration == pb.ConfigId(term=1, number=1)
        assert [node.member.id for node in status.nodes] == ["w0", "s0"]
    finally:
        again.close()


def test_a_coordinator_that_ends_sends_its_launcher_to_the_next_one(tmp_path):
    """A launcher that is refused ends the job: one that has come back too soon is to ask again."""
    served = Served(tmp_path)
    try:
        served._loop.call_soon_threadsafe(served.runtime.fail, OSError("disk full"))
        with showing(grpc.insecure_channel(f"127.0.0.1:{served.port}"), TOKEN) as channel:
            stream = rpc.CoordinatorStub(channel).Attach(pb.AttachRequest(), timeout=20)
            with pytest.raises(grpc.RpcError) as refused:
                next(iter(stream))
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert refused.value.details() == "the coordinator is failing"
    finally:
        served.close()


@pytest.fixture
def buggy(monkeypatch):
    """A set of events that the core fails on."""
    kinds, takes = set(), runtime.step

    def fail(state, event):
        if type(event) in kinds:
            raise KeyError("a bug")
        return takes(state, event)

    monkeypatch.setattr(runtime, "step", fail)
    return kinds


@pytest.mark.parametrize("kind", [ev.Reported, ev.DrawAsked], ids=["told", "asked"])
def test_a_request_that_the_core_fails_on_changes_nothing_and_is_told(served, operator, buggy, kind):
    worker = start(served)[0]
    before = served.runtime.state.job
    buggy.add(kind)
    call, request = (
        (worker.stub.Report, pb.ReportRequest) if kind is ev.Reported else (worker.stub.Draw, pb.DrawRequest)
    )
    with pytest.raises(grpc.RpcError) as refused:
        call(request(caller=worker.caller), timeout=10)
    assert refused.value.code() is grpc.StatusCode.INTERNAL, "which a node bears for a while"
    assert refused.value.details() == (
        f"a bug of the coordinator: it failed on {kind.__name__} with KeyError('a bug'); see its log"
    )
    assert served.runtime.state.job == before
    assert "KeyError('a bug')" in operator.Status(pb.StatusRequest(), timeout=10).reason
    buggy.clear()
    worker.report(version=7)
    assert not served.runtime.failed.done()


@pytest.mark.parametrize("kind", [ev.Tick, ev.Attached])
def test_a_core_that_fails_on_what_nobody_can_take_back_ends_its_process(served, operator, buggy, kind):
    """The next one begins from the journal; launchers and nodes ask until it answers."""
    buggy.add(kind)
    while not served.runtime.failed.done():
        stream = operator.Attach(pb.AttachRequest(), timeout=20)
        with suppress(grpc.RpcError):
            next(iter(stream))
        stream.cancel()
    with pytest.raises(grpc.RpcError) as refused:
        next(iter(operator.Attach(pb.AttachRequest(), timeout=20)))
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
