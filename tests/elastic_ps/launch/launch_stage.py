"""A job of puppets: the launcher is real, its processes and its coordinator do what the test says."""

import errno
import io
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import grpc

from elastic_ps.control.token import Door, read_token
from elastic_ps.core.configuration import Role
from elastic_ps.launch.commands import JoinSettings
from elastic_ps.launch.job_agent import JobAgent
from elastic_ps.launch.job_folder import JobFolder
from elastic_ps.launch.options import JobSettings
from elastic_ps.launch.outcome import LauncherOutcome
from elastic_ps.launch.processes.child_process import ChildProcess
from elastic_ps.launch.processes.output import MergedStream
from elastic_ps.system.process.proc_stat import stat_fields
from protos import elastic_pb2 as pb
from protos import elastic_pb2_grpc as rpc

PUPPET = Path(__file__).with_name("puppet.py")
PATIENCE = 30.0
"""Seconds after which a test that waits for something fails."""


def puppet_command(port: int, name: str) -> list[str]:
    names = ("ELASTIC_COORDINATOR", "ELASTIC_NONCE", "ELASTIC_HOST", "OMP_NUM_THREADS")
    return [sys.executable, "-I", "-S", str(PUPPET), str(port), name, *names]


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie has: only its parent has not asked yet)."""
    try:
        return stat_fields(pid)[0] == "Z"
    except FileNotFoundError:
        return True


def wait_gone(pid: int) -> None:
    """Return once a process that is not this one's child has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with os.fdopen(descriptor):
        assert wait([descriptor], PATIENCE), f"process {pid} still runs"


class Puppet:
    """One process under the test's control."""

    def __init__(self, connection: socket.socket):
        connection.settimeout(PATIENCE)
        self._connection = connection
        self._lines = connection.makefile()
        self.name, pid, environment = self.heard().split(" ", 2)
        self.pid = int(pid)
        self.environment = dict(item.split("=", 1) for item in environment.split(","))

    def tell(self, command: str) -> None:
        self._connection.sendall(f"{command}\n".encode())

    def heard(self) -> str:
        """The next line from it; "" once it is dead."""
        try:
            return self._lines.readline().rstrip("\n")
        except ConnectionResetError:
            return ""

    def close(self) -> None:
        self._lines.close()
        self._connection.close()


class ScarceProcesses:
    """A system that has no process for a launcher the first times that it asks."""

    def __init__(self, times: int, number: int = errno.EAGAIN):
        self.left, self._number = times, number

    def __call__(self, *arguments: Any) -> ChildProcess:
        if self.left:
            self.left -= 1
            raise OSError(self._number, os.strerror(self._number))
        return ChildProcess(*arguments)


class Stage:
    """Takes the connections of puppets."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE)
        self.port = self._listener.getsockname()[1]
        self._waiting: list[Puppet] = []
        self._all: list[Puppet] = []

    def enter(self, kind: str) -> Puppet:
        """The next puppet whose name starts with `kind`."""
        for puppet in self._waiting:
            if puppet.name.startswith(kind):
                self._waiting.remove(puppet)
                return puppet
        puppet = Puppet(self._listener.accept()[0])
        self._all.append(puppet)
        self._waiting.append(puppet)
        return self.enter(kind)

    def close(self) -> None:
        self._listener.close()
        for puppet in self._all:
            puppet.close()


class FakeCoordinator(rpc.CoordinatorServicer):
    """Says to launchers what the test wants, and remembers what they said.

    Args:
        root: of the folders in which the job's token is.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.exits: queue.SimpleQueue[pb.NodeExitedRequest] = queue.SimpleQueue()
        self.stops: queue.SimpleQueue[pb.StopRequest] = queue.SimpleQueue()
        self.status = pb.StatusReply(version=84, data=pb.DataSpec(exchanges=2))
        self.refusal = ""
        self.answering = threading.Event()  # questions for its status
        self.answering.set()
        self.known: set[str] = set()  # nonces of those that have registered, whatever launchers have heard
        self.absences = 0  # exits that it does not take before it takes one
        self.deaths = 0  # exits that it takes, and does not answer, before it answers one
        self._wanted = pb.Wanted()
        self._changed = threading.Condition()
        self._number = 0
        self._server = grpc.server(ThreadPoolExecutor(8))
        rpc.add_CoordinatorServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def want(self, **fields: object) -> None:
        """Give out a new Wanted; `nodes` is a dict of nonce to id."""
        nodes = fields.pop("nodes", {})
        assert isinstance(nodes, dict)
        message = pb.Wanted(**fields, nonces=list(nodes), nodes=list(nodes.values()))
        with self._changed:
            self._wanted, self._number = message, self._number + 1
            self._changed.notify_all()

    def Greet(self, request: pb.GreetRequest, context: grpc.ServicerContext) -> pb.GreetReply:
        newest = max(self._root.rglob("token"), key=lambda path: path.stat().st_mtime_ns)
        return Door(read_token(newest)).greet(context.invocation_metadata())

    def Attach(self, request: pb.AttachRequest, context: grpc.ServicerContext) -> Iterator[pb.Wanted]:
        if self.refusal:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, self.refusal)
        context.add_callback(self._wake)
        seen = 0
        while context.is_active():
            with self._changed:
                self._changed.wait_for(partial(self._is_news, seen, context))
                seen, message = self._number, self._wanted
            if context.is_active():
                yield message

    def NodeExited(self, request: pb.NodeExitedRequest, context: grpc.ServicerContext) -> pb.NodeExitedReply:
        if self.absences:
            self.absences -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "it asks its nodes")
        if self.deaths:
            self.deaths -= 1
            self.known.discard(request.nonce)
            context.abort(grpc.StatusCode.UNAVAILABLE, "killed before it has answered")
        self.exits.put(request)
        return pb.NodeExitedReply(known=request.nonce in self.known)

    def Stop(self, request: pb.StopRequest, context: grpc.ServicerContext) -> pb.StopReply:
        self.stops.put(request)
        return pb.StopReply()

    def Status(self, request: pb.StatusRequest, context: grpc.ServicerContext) -> pb.StatusReply:
        if self.refusal:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, self.refusal)
        assert self.answering.wait(PATIENCE)
        return self.status

    def close(self) -> None:
        self.answering.set()
        self._server.stop(None).wait()

    def _is_news(self, seen: int, context: grpc.ServicerContext) -> bool:
        return self._number > seen or not context.is_active()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


@dataclass
class PuppetCommands:
    """Command lines of a job of puppets; `ports` and `terms` are those that coordinators were started with."""

    stage_port: int
    ports: list[int] = field(default_factory=list)
    terms: list[int] = field(default_factory=list)

    def coordinator(self, folder: Path, token_file: Path, port: int, term: int) -> list[str]:
        self.ports.append(port)
        self.terms.append(term)
        return puppet_command(self.stage_port, "coordinator")

    def node(self, role: Role, join: JoinSettings, nonce: str) -> list[str]:
        return puppet_command(self.stage_port, nonce)


class Transcript(io.StringIO):
    """A stream whose reader can wait for a text."""

    def __init__(self) -> None:
        super().__init__()
        self._written = threading.Condition()

    def write(self, text: str) -> int:
        with self._written:
            count = super().write(text)
            self._written.notify_all()
            return count

    def wait_for(self, text: str) -> None:
        with self._written:
            assert self._written.wait_for(lambda: text in self.getvalue(), PATIENCE), self.getvalue()


class Job:
    """A launcher in a thread of its own, with its coordinator played."""

    def __init__(self, root: Path, stage: Stage, fake: FakeCoordinator, settings: JobSettings):
        self.fake = fake
        self.stage = stage
        self.commands = PuppetCommands(stage.port)
        self.transcript = Transcript()
        self.folder = JobFolder(settings.job.name, root)
        self.agent = JobAgent(settings, self.folder, self.commands, MergedStream(self.transcript))
        self._outcomes: queue.SimpleQueue[LauncherOutcome | BaseException] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.coordinator = stage.enter("coordinator")

    def _run(self) -> None:
        try:
            self._outcomes.put(self.agent.run())
        except BaseException as error:  # noqa: BLE001  # handed to the test
            self._outcomes.put(error)

    def listen(self) -> None:
        """The coordinator says that it is ready."""
        self.coordinator.tell(f"say listening on {self.fake.address}")
        assert self.coordinator.heard() == "said"

    def workers(self, count: int) -> list[Puppet]:
        return [self.stage.enter("worker") for _ in range(count)]

    def exit_of(self, puppet: Puppet) -> int:
        """The status that the coordinator was told for a puppet's process."""
        request = self.fake.exits.get(timeout=PATIENCE)
        assert request.nonce == puppet.name
        return request.status

    def end(self) -> LauncherOutcome:
        """The coordinator obeys its launcher; how that has ended."""
        assert self.coordinator.heard() == "end"
        self.coordinator.tell("exit 0")
        return self.outcome()

    def outcome(self) -> LauncherOutcome:
        outcome = self._outcomes.get(timeout=PATIENCE)
        self._thread.join(PATIENCE)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def close(self) -> None:
        """Whatever has happened: end the launcher and what it has started."""
        while self._thread.is_alive():
            self.agent.signalled(signal.SIGTERM)
            self._thread.join(0.1)
        self.folder.release()


StartJob = Callable[..., Job]


def running(start_job: StartJob, workers: int = 1, servers: int = 0, **settings: object) -> tuple[Job, list[Puppet]]:
    """A job whose nodes have been started and have registered."""
    job = start_job(**settings)
    job.listen()
    job.fake.want(workers=workers, servers=servers, starting_workers=workers, starting_servers=servers)
    puppets = job.workers(workers) + [job.stage.enter("server") for _ in range(servers)]
    registered(job, puppets, workers=workers, servers=servers)
    return job, puppets


def registered(job: Job, puppets: list[Puppet], **fields: object) -> None:
    """The coordinator knows these processes; returns once the launcher knows that."""
    nodes = {puppet.name: f"{puppet.name[0]}{number}" for number, puppet in enumerate(puppets)}
    job.fake.want(nodes=nodes, **fields)
    for puppet in puppets:
        job.transcript.wait_for(f"{nodes[puppet.name]} has joined (pid {puppet.pid})")


def over(job: Job, *puppets: Puppet, status: int = 0) -> LauncherOutcome:
    """The job finishes, these processes, which its coordinator knows, end with it; how the launcher ends."""
    nodes = {puppet.name: f"{puppet.name[0]}{number}" for number, puppet in enumerate(puppets)}
    job.fake.want(workers=2, servers=1, ended=True, reason="all done", nodes=nodes)
    job.transcript.wait_for("the job is over: all done")
    for puppet in puppets:
        puppet.tell(f"exit {status}")
        assert job.exit_of(puppet) == status
    return job.end()
