"""This module says what people see of a cluster that really runs, and what they may ask of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from dl2_scheduler.cluster.snapshot import Grant


class LiveJobPhase(StrEnum):
    """A `LiveJobPhase` says where a job is between its submission and its end.

    waiting     it has no processes: not begun, or suspended with a checkpoint
    starting    its processes have been started and do not train yet
    running     it trains
    suspending  it ends, to go on later
    stopping    it ends, as asked
    finished    it has trained all its epochs
    failed      it has ended otherwise; the reason says how
    stopped     somebody asked for its end
    """

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDING = "suspending"
    STOPPING = "stopping"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def ended(self) -> bool:
        """Return whether nothing comes after it."""
        return self in (LiveJobPhase.FINISHED, LiveJobPhase.FAILED, LiveJobPhase.STOPPED)

    @property
    def has_processes(self) -> bool:
        """Return whether something of it runs."""
        return not self.ended and self is not LiveJobPhase.WAITING


@dataclass(frozen=True)
class JobStatus:
    """A `JobStatus` describes one job as operators see it.

    Attributes:
        name: the name of the job.
        model: its type.
        phase: where it is.
        reason: why it is there, for people; "" where the phase says it all.
        workers: the workers that it has.
        servers: the servers that it has.
        min_workers: the least workers that it runs with.
        min_servers: the least servers that it runs with.
        max_workers: the most workers that it can use.
        max_servers: the most servers that it can use.
        held: its counts are its owner's; the policy leaves it alone.
        epochs_done: see `JobState`.
        epochs: the epochs that it trains; 0: its document does not tell.
        samples_per_second: the samples a second of all workers, when last measured; 0: not known.
        submitted: unix seconds.
        ended: unix seconds; None: it has not.
        log: file of its output; None: it has not begun.
        arrival: as snapshots have it; None: not known.
    """

    name: str
    model: str
    phase: LiveJobPhase
    reason: str
    workers: int
    servers: int
    min_workers: int
    min_servers: int
    max_workers: int
    max_servers: int
    held: bool
    epochs_done: float
    epochs: float
    samples_per_second: float
    submitted: float
    ended: float | None
    log: Path | None
    arrival: float | None = None


@dataclass(frozen=True)
class NodeLoad:
    """A `NodeLoad` says what a node has, and what tasks claim of it.

    Attributes:
        name: the name of the node.
        capacity: what it has, by resource.
        used: what tasks claim, by resource; over the capacity where more runs than it now has.
    """

    name: str
    capacity: Mapping[str, float]
    used: Mapping[str, float]


@dataclass(frozen=True)
class TaskLoad:
    """A `TaskLoad` says what one task uses.

    Attributes:
        job: the job that it is of.
        task: its id in the job.
        node: the node that it is counted on.
        cores: the cores that it used, of late.
        limit_cores: the cores that it may use; 0: nothing limits it.
        memory_bytes: resident.
    """

    job: str
    task: str
    node: str
    cores: float
    limit_cores: float
    memory_bytes: int


@dataclass(frozen=True)
class ClusterLoad:
    """A `ClusterLoad` says what all nodes carry.

    Attributes:
        nodes: all.
        tasks: the tasks that run.
        isolation: how tasks are kept to their share, for people.
        slot_seconds: length of a slot; 0: not known.
        is_measured: whether anybody measures what tasks use: else their cores and bytes are 0.
    """

    nodes: Sequence[NodeLoad]
    tasks: Sequence[TaskLoad]
    isolation: str
    slot_seconds: float = 0.0
    is_measured: bool = True


class JobDesk(Protocol):
    """A `JobDesk` takes people's requests for the jobs of a live cluster, from any thread.

    It notes what is wanted; the cluster's loop does it (see `Cluster`).
    """

    def submit(self, document: str, folder: Path) -> str:
        """Take a job, and return its name.

        Args:
            document: an ElasticJob, as YAML.
            folder: the folder that it was submitted from: where its program runs, unless the document says otherwise.

        Raises:
            BadInput: the document is wrong, or a task of the job fits no node.
            ClusterRefused: a job of that name has not ended.
        """

    def check(self, document: str, folder: Path) -> str:
        """Refuse what `submit` would, and return the job's name; nothing is taken.

        Args:
            document: an ElasticJob, as YAML.
            folder: the folder that it would be submitted from.

        Raises:
            BadInput, ClusterRefused: see `submit`.
        """

    def stop(self, name: str) -> None:
        """Ask for a job's end, and return when that is written down.

        Raises:
            NoSuchJob: there is none.
            ClusterRefused: it has ended.
        """

    def hold(self, name: str) -> None:
        """Leave a job's counts as they are from now on: the policy no longer decides about it.

        Raises:
            NoSuchJob: there is none.
            ClusterRefused: it has ended, or is held.
        """

    def release(self, name: str) -> None:
        """Let the policy decide about a held job again, or a job begin that was submitted suspended.

        Raises:
            NoSuchJob: there is none.
            ClusterRefused: it has ended, or is neither.
        """

    def scale(self, name: str, workers: int, servers: int) -> Grant:
        """Give a held job other counts, and return those that it is to have.

        Args:
            name: the name of the job.
            workers: how many; 0: as they are.
            servers: how many; 0: as they are.

        Raises:
            NoSuchJob: there is none.
            ClusterRefused: it is not held, or cannot have them, and why.
        """

    def load(self) -> ClusterLoad:
        """Return what the nodes carry now. It may take a second: usage is measured over a while."""

    def jobs(self) -> Sequence[JobStatus]:
        """Return the last job of every name, in order of submission."""
