"""This module says what the local cluster needs of the programs that run jobs.

`elasticrun` is the real one; tests have a played one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dl2_scheduler.cluster.errors import SchedulerError
from elastic_ps.core.exit_status import signal_of
from elastic_ps.core.job_mode import JobMode

WORKER, SERVER = "worker", "server"
"""Roles of tasks."""


class Unreachable(SchedulerError):
    """`Unreachable` is raised where no coordinator, or no storage, answers for the job (now)."""


class Declined(SchedulerError):
    """`Declined` is raised where the job's coordinator will not do it; the message says why."""


@dataclass(frozen=True)
class LauncherProcess:
    """A `LauncherProcess` names a launcher's process, which no other can be taken for.

    Attributes:
        pid: its process id.
        birth: the machine's boot and the process's start in it.
    """

    pid: int
    birth: str


@dataclass(frozen=True)
class TaskShape:
    """A `TaskShape` says what a job's tasks are like.

    Attributes:
        name: the name of the job.
        submission: its number, which no other job of that name has.
        slots: the slots of a virtual node that one task takes, by role.
        environment: the environment of a task, beside what it inherits, by role.
    """

    name: str
    submission: int
    slots: Mapping[str, float]
    environment: Mapping[str, Mapping[str, str]]

    @property
    def key(self) -> str:
        """The submission's key, in names of files."""
        return f"{self.name}-{self.submission}"


@dataclass(frozen=True)
class LaunchOrder:
    """A `LaunchOrder` says which job to start, and how.

    Attributes:
        shape: the shape of its tasks.
        submitted: unix seconds.
        run: the number of this start, from 1 on.
        command: program and arguments, as the document has them.
        folder: where it runs.
        workers: how many it starts with.
        servers: how many it starts with.
        checkpoint_url: the folder that checkpoints go below; "": the cluster's.
        checkpoint_interval: seconds; None: it is asked to save itself only.
        retry_limit: deaths of tasks that the launcher mends.
        block_replicas: servers that keep a copy of each block.
        mode: whether it has servers.
        was_saved: what it has trained is in a checkpoint, which has to be there.
    """

    shape: TaskShape
    submitted: float
    run: int
    command: tuple[str, ...]
    folder: Path
    workers: int
    servers: int
    checkpoint_url: str
    checkpoint_interval: float | None
    retry_limit: int
    block_replicas: int = 0
    mode: JobMode = JobMode.PARAMETER_SERVERS
    was_saved: bool = False

    @property
    def name(self) -> str:
        """The job's name."""
        return self.shape.name

    @property
    def submission(self) -> int:
        """See `TaskShape`."""
        return self.shape.submission

    @property
    def identity(self) -> str:
        """The submission's name in its checkpoints and in its folders, which no other cluster's has either."""
        return f"{self.shape.key}-{self.submitted:.0f}"


@dataclass(frozen=True)
class RunningTask:
    """A `RunningTask` is a node of a job.

    Attributes:
        id: in the job, as in w0.
        role: worker | server.
        pid: the id of its process, which leads its process group.
    """

    id: str
    role: str
    pid: int


@dataclass(frozen=True)
class Usage:
    """`Usage` says what a task's processes use.

    Attributes:
        cores: the cores that they used of late.
        limit_cores: the cores that they may use; 0: nothing limits them.
        memory_bytes: resident.
    """

    cores: float
    limit_cores: float
    memory_bytes: int


@dataclass(frozen=True)
class JobReport:
    """A `JobReport` is what a job's coordinator says of it.

    Attributes:
        trains: whether its nodes are together.
        reason: why not, for people.
        workers: the workers that train.
        servers: the servers that hold parameters.
        wanted_workers: the workers that it was asked to have.
        wanted_servers: the servers that it was asked to have.
        has_trained: whether there is something to save, or may be: a coordinator that was started again may not know.
        epochs: trained so far, parts of one too; 0 where the script draws its own batches.
        samples_per_epoch: 0: not known yet.
        samples_per_second: the samples a second of all workers.
        tasks: those that have joined, in the order of their ids.
    """

    trains: bool
    reason: str
    workers: int
    servers: int
    wanted_workers: int
    wanted_servers: int
    has_trained: bool
    epochs: float
    samples_per_epoch: float
    samples_per_second: float
    tasks: tuple[RunningTask, ...] = ()


@dataclass(frozen=True)
class LauncherEnding:
    """A `LauncherEnding` is what a launcher has left behind.

    Attributes:
        status: its exit status; None: it was killed, or never let go.
        reason: for people.
        at: unix seconds.
        is_stopped: somebody has had its coordinator end it: in order, but before its scripts ended.
    """

    status: int | None
    reason: str
    at: float
    is_stopped: bool = False

    @property
    def is_by_signal(self) -> bool:
        """Return whether somebody has killed it, or told it to end by a signal, as a machine does that goes down."""
        return self.status is None or signal_of(self.status) > 0


class Over(Unreachable):
    """`Over` is raised where the job is over, and only its launcher still runs.

    Attributes:
        ending: what it will leave behind, as far as is known now.
    """

    def __init__(self, name: str, ending: LauncherEnding):
        super().__init__(f"{name} is over: {ending.reason}")
        self.ending = ending


class JobRuntime(Protocol):
    """A `JobRuntime` runs jobs. Every method names a job by its name."""

    def start(self, order: LaunchOrder, started: Callable[[LauncherProcess], None]) -> None:
        """Start a launcher; it goes on from the submission's last checkpoint where there is one.

        Args:
            order: what to start.
            started: told of the process before it does anything, so that it cannot be lost.

        Raises:
            Declined: it cannot be started.
            Unreachable: it cannot be started now, as its checkpoints cannot be read.
        """

    def why_not(self, order: LaunchOrder) -> str:
        """Return why a job could not be started now, for people; "": it could, as far as is known without a try.

        Args:
            order: what would be started.
        """

    def watch(self, process: LauncherProcess) -> None:
        """Wake the cluster's clock when this process, of another `dl2 serve`, ends."""

    def is_alive(self, process: LauncherProcess) -> bool:
        """Return whether this very process runs."""

    def ending(self, name: str, process: LauncherProcess, log: Path) -> LauncherEnding:
        """Return what an ended launcher has left behind.

        Args:
            name: the name of the job.
            process: the launcher.
            log: the file of its output.
        """

    def report(self, name: str, process: LauncherProcess) -> JobReport:
        """Ask the coordinator.

        Args:
            name: the name of the job.
            process: its launcher.

        Raises:
            Over: the job is over.
            Unreachable: nobody answers.
            Declined: it will not tell.
        """

    def since(self, name: str) -> float | None:
        """Return when the job began to train with the nodes that it has, in unix seconds; None: not known yet.

        Raises:
            Unreachable: its coordinator does not answer.
            Declined: it will not tell.
        """

    def why_back(self, name: str) -> str:
        """Return why the job last went back to its checkpoint without a new launcher; "": nobody knows.

        Raises:
            Unreachable: its coordinator does not answer.
            Declined: it will not tell.
        """

    def scale(self, name: str, workers: int, servers: int) -> None:
        """Ask for other counts.

        Args:
            name: the name of the job.
            workers: how many.
            servers: how many.

        Raises:
            Unreachable: its coordinator does not answer.
            Declined: it will not do it.
        """

    def save(self, name: str, done: Callable[[str], None]) -> None:
        """Begin to save the job, which goes on training.

        Args:
            name: the name of the job.
            done: called once, from any thread: "" when the job is saved, else why it is not.
        """

    def stop(self, name: str, process: LauncherProcess) -> None:
        """Ask the job to end, by its coordinator or else by a signal to its launcher."""

    def pin(self, pid: int, cores: frozenset[int]) -> None:
        """Let a task run on these cores alone, with all its threads; nothing happens where it has ended."""

    def tend(self, shapes: Sequence[TaskShape]) -> None:
        """Give running tasks their shares of the machine as it is now divided, and tidy up after those that ended.

        Args:
            shapes: the shapes of all jobs that have not ended.
        """

    def usage(self, tasks: Sequence[RunningTask]) -> Mapping[int, Usage]:
        """Return what tasks that run use, by their pids, measured over a while."""

    @property
    def isolation(self) -> str:
        """Return how tasks are kept to their share, for people."""

    def log(self, name: str, submission: int, run: int) -> Path:
        """Return the file of a launcher's output.

        Args:
            name: the name of the job.
            submission: its number.
            run: the number of the start, from 1 on.
        """
