"""This module holds what a policy sees at the start of a slot, and what it decides."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from dl2_scheduler.cluster.jobs import Job, Node

LEAST_REMAINING = 0.05
"""Part of its epochs that a job which outlived its owner's estimate is taken to need still."""

JobId = int | str


@dataclass(frozen=True)
class JobState:
    """A `JobState` describes a job that has arrived and has not finished.

    Attributes:
        job: as submitted.
        epochs_done: where its training stands, as it last told: a job that goes back to a checkpoint (a server was
            lost, its launcher was killed) has less than before, and does the rest again.
        slots_run: slots in which it ran: it had workers, and servers if it is a job with servers.
        workers: the workers of the slot before.
        servers: the servers of the slot before.
        starting: its processes have been started and do not train yet, so that it has no counts.
        saves: there is a place for its checkpoints, so that it can be suspended and go on later.
        starting_seconds: for how long it has been `starting`; only `ObservedCluster` knows, of the present.
        samples_guessed: it has not told how many samples an epoch has; `job` has those of its type.
    """

    job: Job
    epochs_done: float = 0.0
    slots_run: int = 0
    workers: int = 0
    servers: int = 0
    starting: bool = False
    saves: bool = True
    starting_seconds: float = 0.0
    samples_guessed: bool = False

    @property
    def remaining_epochs(self) -> float:
        """Return what it needs still, as far as a scheduler can know."""
        left = self.job.estimate - self.epochs_done
        return left if left > 0 else LEAST_REMAINING * self.job.estimate

    def seconds_left(self, samples_per_second: float) -> float:
        """Return how long it still trains at a speed; infinity: nobody knows."""
        if samples_per_second <= 0 or self.samples_guessed or not self.job.samples_known:
            return math.inf
        return self.remaining_epochs * self.job.samples_per_epoch / samples_per_second


@dataclass(frozen=True)
class SpeedReport:
    """A `SpeedReport` says how fast a job trained in a slot, as the job measured it.

    Attributes:
        job: the job's id.
        model: its type.
        servers: how many it had.
        workers: how many it had.
        samples_per_second: the samples a second of all workers together.
        stands: it has got no further since the snapshot before: its speed, which falls all the while, tells nothing of
            its type. The first step that ends tells again, where one takes longer than a slot.
    """

    job: JobId
    model: str
    servers: int
    workers: int
    samples_per_second: float
    stands: bool = False


@dataclass(frozen=True)
class Snapshot:
    """A `Snapshot` shows a cluster at the start of a slot.

    Attributes:
        slot: the slot's number.
        slot_seconds: the slot's length.
        nodes: machines.
        jobs: all that want resources, by arrival, then id.
        reports: the reports of the slot before.
    """

    slot: int
    slot_seconds: float
    nodes: tuple[Node, ...]
    jobs: tuple[JobState, ...]
    reports: tuple[SpeedReport, ...] = ()


@dataclass(frozen=True)
class Grant:
    """A `Grant` is what a job gets for a slot; (0, 0): it waits. A job without servers runs with workers alone.

    Attributes:
        workers: how many.
        servers: how many.
        reason: why, for people.
        instead: workers and servers that were decided, where the job runs with others for this slot alone, so that its
            speed with them becomes known; None: it runs as was decided.
    """

    workers: int
    servers: int
    reason: str = ""
    instead: tuple[int, int] | None = None

    @property
    def runs(self) -> bool:
        """Return whether the job runs: every job needs workers, and most need servers, which they then have, too."""
        return self.workers > 0

    @property
    def decided(self) -> tuple[int, int]:
        """The workers and servers that were decided."""
        return self.instead or (self.workers, self.servers)


NOTHING = Grant(0, 0)


@dataclass(frozen=True)
class Allocation:
    """An `Allocation` is what a policy decided about a slot.

    Attributes:
        grants: the grant of each job of the snapshot, by its id.
    """

    grants: Mapping[JobId, Grant] = field(default_factory=dict)

    def of(self, job: JobId) -> Grant:
        """Return what a job gets; one that was not named waits."""
        return self.grants.get(job, NOTHING)

    @property
    def without_exploration(self) -> "Allocation":
        """The grants as they were decided, before some jobs were given other counts for this slot alone."""
        return Allocation({job: Grant(*grant.decided, grant.reason) for job, grant in self.grants.items()})
