"""The whole coordinator over loopback gRPC, with scripted nodes; and as a process."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from token_channel import showing

from coordinator.__main__ import main
from coordinator.admission import make_server
from coordinator.books import Ledger, Steps
from coordinator.journal import Journal, Unwritten
from coordinator.runtime import Runtime
from coordinator.service import Service
from coordinator.state import Job, Settings, State
from coordinator.wishes import Goal
from elastic_ps.core.configuration import Role
from elastic_ps.core.errors import JobEnded
from elastic_ps.core.model import Model
from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.node.session import Session
from elastic_ps.node.settings import NodeSettings
from protos import elastic_pb2 as pb
from protos import elastic_pb2_grpc as rpc

TOKEN = bytes(range(16))


class Served:
    """A coordinator in a thread with a loop of its own."""

    def __init__(self, folder, workers=1, servers=1, port=0):
        self.folder, self.job = folder, Job(Goal(workers, servers), seed=3, model=Model(block_bytes=64))
        self._ready, self._stop = threading.Event(), None
        self._port = port
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="coordinator")
        self._thread.start()
        assert self._ready.wait(20)

    async def _serve(self):
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        journal = Journal(self.folder / "journal.sqlite")
        kept = journal.load()
        settings = Settings(settle=0.0, lease=30.0)
        state = State(settings, *kept) if kept else State(settings, self.job)
        ledger, steps = Ledger(self.folder / "ledger.jsonl"), Steps(self.folder / "steps.jsonl")
        self.runtime = Runtime(state, journal)
        server = make_server(TOKEN)
        rpc.add_CoordinatorServicer_to_server(Service(self.runtime, ledger, steps), server)
        self.port = server.add_insecure_port(f"127.0.0.1:{self._port}")
        self.runtime.start()
        await server.start()
        self._ready.set()
        await self._stop.wait()
        await self.runtime.close()
        await server.stop(0.2)
        for file in (journal, ledger, steps):
            file.close()

    def close(self):
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)


class Node(threading.Thread):
    """A scripted node: answers every directive at once, as an honest one would."""

    def __init__(self, port, kind, nonce):
        super().__init__(name=nonce, daemon=True)
        self.channel = showing(grpc.insecure_channel(f"127.0.0.1:{port}"), TOKEN)
        self.stub = rpc.CoordinatorStub(self.channel)
        server = kind == pb.INC_SERVER
        self.reply = self.stub.Register(
            pb.RegisterRequest(caller=self.caller, kind=kind, host="127.0.0.1", port=9 if server else 0, nonce=nonce),
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
            self.report(self.version + 1)
        elif kind == "adopt":
            self.acknowledge(pb.SWITCHED, directive.adopt.configuration)
            self.report(self.version + 1)
        elif kind == "extend":
            self.acknowledge(pb.EXTENDED)

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
    nodes = [Node(served.port, pb.INC_WORKER, "n0"), Node(served.port, pb.INC_SERVER, "n1")]
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
    nodes += [Node(served.port, pb.INC_WORKER, "n2"), Node(served.port, pb.INC_SERVER, "n3")]
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
    other = Node(served.port, pb.INC_WORKER, "n2")
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


def command(tmp_path, *more):
    (tmp_path / "token").write_text(TOKEN.hex())
    where = ["--job", "j", "--folder", str(tmp_path / "job"), "--token-file", str(tmp_path / "token")]
    return [*where, *more]


def test_the_process_says_where_it_listens_and_ends_on_sigterm(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-m", "coordinator", *command(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        line = process.stdout.readline().decode()
        address = line.removeprefix("listening on ").strip()
        assert (tmp_path / "job" / "coordinator.addr").read_text() == f"{address}\n"
        with grpc.insecure_channel(address) as channel:
            reply = rpc.CoordinatorStub(showing(channel, TOKEN)).Status(pb.StatusRequest(), timeout=10)
        assert (reply.job, reply.phase) == ("j", "starting")
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(20) == 0
        process.communicate()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--seed", "99999999999999999999999"], "must be from 0 to 18446744073709551615"),
        (["--workers", "65536"], "must be at most 65535"),
    ],
)
def test_numbers_that_cannot_be_are_wrong_usage(tmp_path, capsys, more, says):
    with pytest.raises(SystemExit) as error:
        main(command(tmp_path, *more))
    assert error.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--restore", "/nowhere"], "no checkpoint under /nowhere"),
        (["--port", "1", "--host", "192.0.2.1"], "cannot listen"),
    ],
)
def test_it_says_why_it_cannot_start(tmp_path, capsys, more, says):
    assert main(command(tmp_path, *more)) == 2
    assert says in capsys.readouterr().err


def test_a_coordinator_that_cannot_write_its_journal_ends_with_one_sentence(tmp_path, monkeypatch, capsys):
    def full(journal, *rows):
        raise Unwritten(tmp_path / "journal.sqlite", "database or disk is full")

    monkeypatch.setattr(Journal, "write", full)
    assert main(command(tmp_path)) == 2
    said = capsys.readouterr().err
    assert said.splitlines()[-1].startswith(f"coordinator: cannot write {tmp_path}/journal.sqlite: database or disk")
    assert "Traceback" not in said
