"""A real job that is disturbed: what it does meanwhile, and when it is itself again."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordinator.client import ClientError
from coordinator.core.plans.scale_goal import RESTORE
from elastic_ps.system.process.proc_stat import stat_fields
from tests.chaos import disks
from tests.chaos.draw import ALL_REDUCE, JobDraw
from tests.chaos.network import NODE, End
from tests.chaos.preload import Preload
from tests.chaos.result import bound
from tests.e2e import jobs
from tests.e2e.proofs import SCRIPT
from tests.world.faults.cells import BROKEN, COORDINATOR, FULL, JUMP, LAUNCHER, POWER, SERVER, STORAGE, WORKER

TORCH_SCRIPT = jobs.SCRIPTS / "torch_regression.py"
WORKERS = 2
"""Of a job at rest."""

ROLES = {WORKER: 1, SERVER: 2}
MODES = {
    "sync": (),
    "async": ("--consistency", "async", "--rate", "0.01"),
    "ssp": ("--consistency", "ssp", "--staleness", "2", "--rate", "0.01"),
    ALL_REDUCE: (),
}
START_SECONDS = 180.0
PROMPT_SECONDS = 20.0
_PACE = ("--pace", "0.1")  # a plan's last phase lasts some steps: long enough to be met, and cheap
_CHECKPOINT_SECONDS = 3.0
_LOOK_SECONDS = 0.05
_STATE = "state"
_CALL_SECONDS = 1.0
_STEPS = 5  # of each worker, that prove that a job trains


class Hung(Exception):
    """What had to happen did not within its bound."""


class Ended(Exception):
    """The job has ended, which nobody asked for."""


@dataclass(frozen=True)
class Node:
    """A process of the job, as its coordinator knew it a moment ago.

    Attributes:
        name: its id.
        role: "worker", "server", "coordinator", "launcher" or "storage".
        state: as `NodeStatus.state`.
        pid: of its process.
        port: that it listens at; 0 for workers.
    """

    name: str
    role: str
    state: str
    pid: int
    port: int

    @property
    def end(self) -> End:
        """Of its links."""
        return End(self.pid, self.port)


class DisturbedJob:
    """One job; see `start`.

    Args:
        job: under elasticrun.
        folder: of the script.
        draw: what it is.

    Attributes:
        base: workers and servers at rest.
        grown: those after the plan whose phases are hit.
        slowness: how many times longer the job took to start than it may on a machine that is not overloaded.
        preload: what its processes meet, where disks are to fail or clocks to jump.
        powered: the coordinator's disk, where it is to lose power.
    """

    def __init__(
        self,
        job: jobs.Job,
        folder: Path,
        draw: JobDraw,
        preload: Preload | None = None,
        powered: disks.PoweredDisk | None = None,
    ):
        self.job = job
        self.folder = folder
        self.lease = draw.lease
        self.replicas = draw.replicas
        self.base = WORKERS, draw.servers
        self.grown = WORKERS + 1, draw.servers + (not draw.serverless)
        self.slowness = 1.0
        self.preload = preload
        self.powered = powered
        self._pids: dict[str, int] = {}  # of every node that was ever seen

    # ---- looking -----------------------------------------------------------------------------------------------

    def status(self) -> Any:
        """The coordinator's, or None where it does not answer within a second."""
        if self.job.process.poll() is not None:
            raise Ended(f"elasticrun has ended with status {self.job.process.returncode}")
        status = self.job.status()
        if status is not None:
            self._pids.update({node.member.id: node.pid for node in status.nodes if node.pid})
        return status

    def nodes(self, role: str = "", states: tuple[str, ...] = ()) -> list[Node]:
        """Those whom the coordinator knows now, by role and state; all where these are not given."""
        names = {number: name for name, number in ROLES.items()}
        found = [
            Node(node.member.id, names[node.member.role], node.state, node.pid, node.member.port)
            for node in self.until(lambda status: status, 30, "an answer of the coordinator").nodes
        ]
        return [node for node in found if role in ("", node.role) and (not states or node.state in states)]

    @property
    def coordinator(self) -> Node:
        """Its process now."""
        told = jobs.described(self.job)
        return Node(COORDINATOR, COORDINATOR, "member", told["coordinator_pid"], int(told["coordinator"].split(":")[1]))

    @property
    def launcher(self) -> Node:
        """Its process."""
        return Node(LAUNCHER, LAUNCHER, "member", self.job.process.pid, 0)

    def disk(self, role: str) -> Path:
        """The folder that is the coordinator's disk, or that of checkpoints."""
        return self.folder / (STORAGE if role == STORAGE else _STATE)

    def beats(self) -> int:
        """Steps that workers have made, all together, those that are made again counted again."""
        with suppress(FileNotFoundError):
            return (self.folder / "beats").stat().st_size
        return 0

    def until(self, look: Callable[[Any], Any], seconds: float, what: str, pause: float = _LOOK_SECONDS) -> Any:
        """Look at statuses until one will do; returns what `look` returned. Raises Hung, Ended."""
        deadline = time.monotonic() + seconds
        while True:
            status = self.status()
            if status is not None and (found := look(status)):
                return found
            if time.monotonic() > deadline:
                raise Hung(f"{what} did not come within {seconds:.0f} s")
            time.sleep(pause)

    @property
    def bound(self) -> float:
        """Seconds from a fault's end after which it is called hung, if it is not whole."""
        return bound(self.lease) * self.slowness

    # ---- at rest -----------------------------------------------------------------------------------------------

    def strays(self, status: Any) -> dict[str, int]:
        """Processes by node that live though the job knows them no more: expelled, they must end."""
        known = {node.member.id for node in status.nodes}
        return {name: pid for name, pid in self._pids.items() if name not in known and is_alive(pid)}

    def is_whole(self, status: Any) -> bool:
        """Whether the job is as it is wanted to be, and nothing is under way."""
        wanted = (status.wanted_workers, status.wanted_servers)
        quiet = status.phase == "running" and not status.plan.id and not status.queued
        whole = quiet and jobs.counts(status) == wanted and status.version > 0
        return whole and (not self.replicas or self.is_protected(status))

    def is_protected(self, status: Any) -> bool:
        """Whether the job trains, and each of its blocks has a follower."""
        return (
            bool(self.replicas)
            and status is not None
            and status.phase == "running"
            and 0 < status.protection.blocks == status.blocks
        )

    def restores(self) -> dict[int, str]:
        """Causes of the plans by which the job went on from its checkpoint, by their ids."""

        def asked(_: Any) -> tuple[list[Any], ...]:
            with suppress(ClientError):
                return (self.job.client.plans(),)
            return ()

        (plans,) = self.until(asked, 30, "an answer about plans")
        return {plan.id: plan.cause for plan in plans if plan.cause.startswith(RESTORE)}

    def settle(self, seconds: float) -> None:
        """Wait until the job is whole, trains, and nobody is left of those that it has lost."""
        whole = self.until(
            lambda status: self.is_whole(status) and not self.strays(status) and status, seconds, "a whole job"
        )
        enough = self.beats() + _STEPS * whole.wanted_workers
        self.until(lambda _: self.beats() >= enough, seconds, "training")

    def scale(self, counts: tuple[int, int]) -> None:
        """Ask for other numbers, as often as the coordinator is away; nothing is waited for."""

        def asked(_: Any) -> bool:
            try:
                self.job.client.scale(counts[0], counts[1] or None)
            except ClientError:
                return False
            return True

        self.until(asked, 30, "an answer to a scaling")

    def abort(self) -> None:
        """End every process by SIGABRT, at which Python's fault handler writes its threads' stacks into its log."""
        alive = [pid for pid in self._pids.values() if is_alive(pid)]
        for pid in [*alive, self.coordinator.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGABRT)
                os.kill(pid, signal.SIGCONT)
        time.sleep(1.0)  # they write

    def has_checkpoint(self) -> bool:
        """Whether a job that has lost its parameters can go on."""
        return any(self.disk(STORAGE).glob("version-*/manifest.json"))

    # ---- holding -----------------------------------------------------------------------------------------------

    @contextmanager
    def held(self, name: str) -> Iterator[Path]:
        """Workers' scripts wait at "hold-init" before they join, at "hold" before they are ready."""
        path = self.folder / name
        for waits in self.folder.glob(f"{name}.*"):
            waits.unlink()
        path.touch()
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def waiting(self, name: str) -> list[int]:
        """Processes of scripts that wait at a place that is held."""
        found = [int(path.name.rpartition(".")[2]) for path in self.folder.glob(f"{name}.*")]
        return [pid for pid in found if is_alive(pid)]


def unregistered(role: str, pid: int) -> Node:
    """A process that the coordinator does not know yet."""
    return Node(f"process {pid}", role, "unregistered", pid, 0)


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return stat_fields(pid)[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process is stopped for a moment, to hold a phase that needs its answer: far less than a lease."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@contextmanager
def start(folder: Path, draw: JobDraw) -> Iterator[DisturbedJob]:
    """Run a job at rest: where links are to be hit they can be told apart, so that `network.rules` work."""
    state, storage = folder / _STATE, folder / STORAGE
    powered = None
    for path in (state, storage):
        path.mkdir()
        if path == state and POWER in draw.kinds:
            powered = disks.PoweredDisk(path, folder)
        elif FULL in draw.kinds:
            disks.small(path)
    preload = Preload(folder, (state, storage)) if draw.kinds & {BROKEN, JUMP} else None
    roles = (WORKER,) if draw.serverless else tuple(ROLES)
    wraps = [option for role in roles for option in (f"--wrap-{role}", str(NODE))] if draw.of_network else []
    every = ("--max-restarts", "1000", "--grace", "10", "--lease", str(draw.lease))
    every += ("--join-timeout", "40")  # of a process that is frozen before it has registered
    if draw.serverless:
        every += ("--mode", ALL_REDUCE)
    else:
        every += ("--transport", draw.transport, "--replicas", str(draw.replicas))
    if draw.checkpoints:
        every += ("--checkpoint-interval", str(_CHECKPOINT_SECONDS), "--checkpoint", str(storage))
    how = {
        "workers": WORKERS,
        "servers": draw.servers,
        "options": (*every, *wraps),
        "call_seconds": _CALL_SECONDS,
        "wrap": (*(preload.wrap if preload else ()), *([str(NODE)] if draw.of_network else ())),
    }
    script = TORCH_SCRIPT if draw.serverless else SCRIPT
    with jobs.run(folder, script, folder, *_PACE, *MODES[draw.mode], **how) as job:
        disturbed = DisturbedJob(job, folder, draw, preload, powered)
        began = time.monotonic()
        disturbed.settle(START_SECONDS)
        disturbed.slowness = max(1.0, (time.monotonic() - began) / PROMPT_SECONDS)
        if draw.checkpoints:
            disturbed.until(lambda _: disturbed.has_checkpoint(), START_SECONDS, "a checkpoint")
        if powered is not None:
            powered.sync()  # what the launcher has written: it outlives the loss of power
        yield disturbed


def chosen(nodes: list[Node], chance: random.Random) -> Node:
    """One of them, by chance."""
    if not nodes:
        raise Hung("there is no node of the kind that was to be hit")
    return chance.choice(sorted(nodes, key=lambda node: node.name))
