"""What operators see of a cluster that really runs, and ask of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from dl2_scheduler.cluster.policy import Cluster


class Phase(StrEnum):
    """Of a job.

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
        """Whether nothing comes after it."""
        return self in (Phase.FINISHED, Phase.FAILED, Phase.STOPPED)

    @property
    def has_processes(self) -> bool:
        """Whether something of it runs."""
        return not self.ended and self is not Phase.WAITING


@dataclass(frozen=True)
class JobStatus:
    """One job, as operators see it.

    Attributes:
        name: of the job.
        model: its type.
        phase: where it is.
        reason: why it is there, for people; "" where the phase says it all.
        workers: that it has.
        servers: that it has.
        max_workers: it can use.
        max_servers: it can use.
        epochs_done: so far.
        epochs: that it trains.
        samples_per_second: of all workers, when last measured; 0: not known.
        submitted: unix seconds.
        ended: unix seconds; None: it has not.
        log: file of its output; None: it has not begun.
    """

    name: str
    model: str
    phase: Phase
    reason: str
    workers: int
    servers: int
    max_workers: int
    max_servers: int
    epochs_done: float
    epochs: float
    samples_per_second: float
    submitted: float
    ended: float | None
    log: Path | None


class LiveCluster(Cluster, Protocol):
    """A cluster that people submit jobs to. What they ask may come from any thread; `Cluster`'s own from one."""

    def submit(self, document: str, folder: Path) -> str:
        """Take a job; returns its name.

        Args:
            document: an ElasticJob, as YAML.
            folder: that it was submitted from: where its program runs, unless the document says otherwise.

        Raises:
            BadInput: the document is wrong, or a task of the job fits no node.
            Refused: a job of that name has not ended.
        """

    def stop(self, name: str) -> None:
        """End a job. Returns when the wish is noted.

        Raises:
            UnknownJob: there is none.
            Refused: it has ended.
        """

    def jobs(self) -> Sequence[JobStatus]:
        """The last job of every name, in order of submission."""
