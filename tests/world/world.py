"""A `World` runs one job: its launcher, which starts the coordinator, servers and workers, all of them production's."""

import gc
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from coordinator.core.protocol import step
from elastic_ps.core.job_mode import JobMode
from elastic_ps.launch import options
from elastic_ps.launch.commands import JobCommands
from elastic_ps.launch.job_agent import JobAgent
from elastic_ps.transport.choice import TransportName
from tests.world import programs, seam
from tests.world.faults.inject import Injector
from tests.world.faults.job_draw import JobDraw
from tests.world.kernel.disk import Disk
from tests.world.kernel.scheduler import DEAD, FROZEN, Process, Scheduler, Task
from tests.world.kernel.threads import Thread, here
from tests.world.network.network import Network
from tests.world.network.rpc import WorldChannel
from tests.world.network.rpc_server import WorldServer
from tests.world.network.transport import WorldTransport
from tests.world.oracles.copies import Copies
from tests.world.oracles.guarantee import Guarantee
from tests.world.oracles.joining import Joining
from tests.world.oracles.survivors import Survivors
from tests.world.story import Story

_TOKEN = "00112233445566778899aabbccddeeff"
_GRACE = 8.0
_LAST_PACE = 0.0, 0.02
_CRASHED_AT_THE_END = "after the last step"
"""How the reason begins of a job that fails by design: a worker was lost when others had finished."""
_LAST_STEPS = 16
"""So many steps scripts may begin yet when one has ended and another was lost; beyond them they have trained on."""


class Child:
    """See `ChildProcess`."""

    def __init__(self, world: "World", process: Process):
        self._world, self._process = world, process

    @property
    def pid(self) -> int:
        return self._process.number

    @property
    def is_stopped(self) -> bool:
        return self._process.state == FROZEN

    def terminate(self, number: int = signal.SIGTERM) -> None:
        self._world.signal(self._process, number)

    def kill(self) -> None:
        self._world.kill(self._process)


class World:
    """See the module.

    Args:
        draw: the job, and what happens to it.
        watch: sees what scripts see.
        folder: for real files; it is empty.
    """

    def __init__(self, draw: JobDraw, watch: Any, folder: Path):
        self.draw, self.watch = draw, watch
        self.scheduler = Scheduler(draw.seed, draw.switches, draw.slow)
        self.scheduler.uncaught = self._uncaught
        self.network = Network(
            self.scheduler, Random(f"network {draw.seed}"), draw.latency, draw.hosts, draw.retransmits
        )
        self.disk = Disk(folder, Random(f"disk {draw.seed}"))
        self.story = Story(str(folder))
        self.processes: list[Process] = []
        self.launcher = Process("launcher", "launcher", 1)
        self.failures: list[str] = []
        watch.world = self
        self.guarantee = Guarantee(self)
        self.copies = Copies(self)
        self.joining = Joining(self)
        self.survivors = Survivors(self)
        self.injector = Injector(self)
        self.coordinator_changed = 0.0
        self._steps_at_loss: int | None = None  # of scripts, when a worker was lost that counts as lost at the end
        self.address, self.token = "", bytes.fromhex(_TOKEN)
        self.secrets = self._secrets(Random(f"secrets {draw.seed}"))
        self.folder = folder

    @staticmethod
    def _secrets(random: Random) -> SimpleNamespace:
        return SimpleNamespace(
            token_hex=lambda size=16: random.randbytes(size).hex(),
            token_bytes=lambda size=16: random.randbytes(size),
            randbits=random.getrandbits,
        )

    def run(self) -> None:
        """Run the job to its end, or to the first failure."""
        (self.folder / "token").write_text(_TOKEN)
        with self.story.heard(), seam.entered(self):
            try:
                self.scheduler.call_at(0.0, self.watch.look)
                self._start(self.launcher, lambda: programs.run_launcher(self.launcher, self._agent()))
                self.scheduler.run()
                if not self.failures and self.launcher.state != DEAD:
                    self.fail("nobody can run any more, and the job has not ended")
            finally:
                self.scheduler.end()

    def fail(self, why: str) -> None:
        """End the world: something is wrong."""
        self.story.tell("WORLD", f"FAILURE: {why}")
        self.failures.append(why)
        self.scheduler.stopped = True

    def _agent(self) -> JobAgent:
        draw = self.draw
        job = options.JobOptions(
            workers=draw.workers,
            servers=draw.servers,
            name="job",
            max_restarts=10_000,
            seed=draw.seed,
            block_bytes=draw.block_bytes,
            migration=options.MigrationMode(draw.migration),
            checkpoint="memory://checkpoints" if draw.saves else "",
            checkpoint_interval=draw.checkpoint_interval if draw.saves else None,
            identity="world",
            lease=draw.lease,
        )
        transport = TransportName.AUTO if draw.hosts else TransportName.TCP
        mode = JobMode.ALL_REDUCE if draw.serverless else JobMode.PARAMETER_SERVERS
        modules = ["tests.world.training"] if draw.commands else None
        nodes = options.NodesOptions("world", mode, transport, 1, modules, join_timeout=30.0, grace=_GRACE)
        settings = options.JobSettings(options.Script("train"), job, nodes)
        folder = SimpleNamespace(
            path=self.folder,
            logs=Path("logs"),
            token_file=self.folder / "token",
            name="job",
            listening=self._listening,
            over=lambda status, reason: None,
            ended=lambda: None,
        )
        merged: Any = SimpleNamespace(flush=lambda seconds: None)
        return JobAgent(settings, folder, JobCommands(settings), merged)  # type: ignore[arg-type]

    def _listening(self, address: str, pid: int) -> None:
        self.address = address

    # ---- processes ---------------------------------------------------------------------------------------------------

    def start_child(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        sink: Any,
        exited: Callable[[int], None],
    ) -> Child:
        """See `ChildProcess`."""
        role = name.partition("-")[0]
        number = len(self.processes) + 2
        process = Process(_short(name) if "-" in name else f"{name}-{number}", role, number)
        process.environment, process.exited, process.said = dict(environment), exited, sink.line
        program: Callable[[], int]
        if role == "worker":
            program = lambda: programs.run_worker(process, self.draw, self.watch, self._pace)  # noqa: E731
        else:
            process.arguments = list(command[3:])
            run = programs.run_coordinator if role == "coordinator" else programs.run_server
            if role == "coordinator":
                self.coordinator_changed = self.scheduler.now
            program = lambda: run(process)  # noqa: E731
        self.processes.append(process)
        self._start(process, program)
        self.injector.provoker.started(process)
        return Child(self, process)

    def _pace(self) -> tuple[float, float]:
        """Return what a step's computation takes, at least and at most: little, when nothing else is to come."""
        return _LAST_PACE if self.injector.is_over else self.draw.pace

    def _start(self, process: Process, program: Callable[[], int]) -> None:
        process.main = Thread(name=f"main of {process}")

        def body() -> None:
            try:
                status = program()
            except SystemExit as error:
                status = error.code if isinstance(error.code, int) else 1
            self.exit(process, status)

        self.story.tell(process.name, "starts")
        self.scheduler.spawn(process, body, process.main)

    def exit(self, process: Process, status: int) -> None:
        """End a process."""
        if process.state == DEAD:
            return
        self.story.tell(process.name, f"ends with status {status}")
        process.state = DEAD
        process.held.clear()
        if process.role == "coordinator":
            self.joining.coordinator_ended(self.coordinator_changed)
            self.coordinator_changed = self.scheduler.now
        self.injector.lost(process, status)
        self.network.died(process)
        if process is self.launcher:
            self.ended(status)
        else:
            delay = self.network.random.random() * 0.02
            self.scheduler.call_at(self.scheduler.now + delay, lambda: process.exited(status))

    def ended(self, status: int) -> None:
        """Take note that the launcher has ended."""
        if status != 0:
            job = self.injector.state.job if self.injector.state is not None else None
            if not self.survivors.excused and not self._was_lost_at_the_end(job):
                self.fail(f"the launcher has ended with status {status}")
        else:
            self.watch.ended()
        self.scheduler.stopped = True

    def _was_lost_at_the_end(self, job: Any) -> bool:
        """Return whether a job has failed for a worker that was lost at its end, and not while the others train."""
        if job is None or self._steps_at_loss is None or not job.reason.startswith(_CRASHED_AT_THE_END):
            return False
        return bool(self.watch.steps <= self._steps_at_loss + _LAST_STEPS)

    def kill(self, process: Process) -> None:
        """Send SIGKILL."""
        self.exit(process, 128 + signal.SIGKILL)

    def signal(self, process: Process, number: int) -> None:
        """Send a signal that a process may handle."""
        handler = process.handlers.get(number, signal.SIG_DFL)

        def act() -> None:
            try:
                handler(number, None)
            except SystemExit as error:
                self.exit(process, error.code if isinstance(error.code, int) else 1)

        if process.state != DEAD:
            if callable(handler):
                self.scheduler.spawn(process, act, process.main)
            else:
                self.exit(process, 128 + number)

    def _uncaught(self, task: Task, error: BaseException) -> None:
        self.fail(f"{task.thread} of {task.process} died: {error!r}")

    # ---- what the seam gives to production ---------------------------------------------------------------------------

    def make_log(self, folder: Path, name: str, merged: Any) -> Any:
        """See `NodeLog`."""
        return SimpleNamespace(
            path=folder / name,
            line=lambda line: self.story.tell(_short(name), line.decode(errors="replace")),
            rename=lambda node: None,
            close=lambda: None,
            last="",
        )

    def step(self, state: Any, event: Any) -> Any:
        """See `coordinator.core.protocol.step`: the world sees what comes of it, and that it raises."""
        try:
            found, effects = step(state, event)
        except Exception as error:
            self.fail(f"the coordinator's core failed on {type(event).__name__}: {error!r}")
            raise
        if not self.scheduler.over:  # else a coordinator that was killed long ago comes to its end
            self.injector.saw(found)
            if not found.job.crashed:
                self._steps_at_loss = None
            elif self._steps_at_loss is None:
                self._steps_at_loss = self.watch.steps
            self.joining.saw(found.job)
            if self.draw.replicas:
                self.copies.saw(found)
            if self.draw.serverless:
                self.survivors.saw(found.job)
        return found, effects

    def make_channel(self, address: str, options: Any = None) -> WorldChannel:
        """See `grpc.insecure_channel`."""
        return WorldChannel(self.network, _running(), address)

    def make_server(self, interceptors: Sequence[Any] = (), options: Any = None) -> WorldServer:
        """See `grpc.aio.server`."""
        return WorldServer(self.network, _running(), interceptors)

    def make_transport(self, token: bytes, sockets: int, folder: str) -> WorldTransport:
        """Make the transport of the process that runs."""
        return WorldTransport(self.network, _running(), self.draw.room, self.watch)


def _short(name: str) -> str:
    """Return a process's name without what is random in it."""
    return "-".join(name.split("-")[:2])


def _running() -> Process:
    return here.scheduler.current.process  # type: ignore[no-any-return]


def run(draw: JobDraw, watch: Any) -> World:
    """Run one world; return it as it has ended."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="world-", dir=memory) as folder:
        world = World(draw, watch, Path(folder))
        gc.disable()
        try:
            world.run()
        finally:
            gc.enable()
        return world
