"""This module describes jobs and nodes as their owners do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.ranges import LATEST, MOST_AMOUNT, MOST_EPOCHS, MOST_SAMPLES, check_range

MOST_TASKS = 256
"""Of one role of a job: a speed is kept for every pair of counts."""

MOST_PARTITIONS = 1_000_000
"""Of a cluster: more than the largest has nodes."""

UNKNOWN_SAMPLES = 1.0
"""Of an epoch, until the job has told: policies that weigh by it try such a job first."""

Resources = Mapping[str, float]
"""Amount of each resource by its name; what is not named is 0."""


@dataclass(frozen=True)
class Node:
    """A `Node` is a machine of the cluster.

    Attributes:
        name: unique in the cluster.
        capacity: what it has.
    """

    name: str
    capacity: Resources


@dataclass(frozen=True)
class Job:
    """A `Job` is what its owner submits (DL2, section 3.1).

    Attributes:
        id: unique in the cluster.
        arrival: seconds since the cluster began.
        model: type of the job.
        epochs: the epochs that it needs.
        samples_per_epoch: the samples of its dataset.
        worker: what one worker takes.
        server: what one parameter server takes; nothing, where the job has none.
        max_workers: the most workers that it can use.
        max_servers: the most servers that it can use; 0: it never has any, its workers all-reduce (DL2, section 7).
        min_workers: the fewest workers that it runs with, if at all.
        min_servers: the fewest servers, likewise.
        epochs_estimate: the epochs that its owner said it needs; None: those that it needs.
        partition: of the cluster: the scheduler of it places the job, where each partition has its own.
    """

    id: int | str
    arrival: float
    model: str
    epochs: float
    samples_per_epoch: float
    worker: Resources
    server: Resources
    max_workers: int = 16
    max_servers: int = 16
    min_workers: int = 1
    min_servers: int = 1
    epochs_estimate: float | None = None
    partition: int = 0

    @property
    def has_servers(self) -> bool:
        """Return whether parameter servers train it; otherwise its workers all-reduce, and it runs with 0 servers."""
        return self.max_servers != 0

    def without_servers(self) -> "Job":
        """Return the same job with workers that all-reduce in place of servers."""
        return replace(self, server={}, max_servers=0, min_servers=0)

    @property
    def estimate(self) -> float:
        """Epochs that a scheduler may know of."""
        return self.epochs if self.epochs_estimate is None else self.epochs_estimate

    @property
    def samples_known(self) -> bool:
        """Return whether it has told how many samples an epoch has."""
        return self.samples_per_epoch != UNKNOWN_SAMPLES

    def check(self) -> None:
        """Refuse what cannot be a job.

        Raises:
            BadInput: with the field and the reason.
        """
        check_range("epochs", self.epochs, MOST_EPOCHS, zero=False)
        check_range("samples_per_epoch", self.samples_per_epoch, MOST_SAMPLES, zero=False)
        check_range("epochs_estimate", self.estimate, MOST_EPOCHS, zero=False)
        check_range("arrival", self.arrival, LATEST)
        check_range("partition", self.partition, MOST_PARTITIONS)
        _check_role("worker", self.worker, self.min_workers, self.max_workers)
        if self.has_servers:
            _check_role("server", self.server, self.min_servers, self.max_servers)
        elif self.min_servers or any(self.server.values()):
            raise BadInput(
                f"max_servers is 0: give 1 to {MOST_TASKS}; or, where the job has no servers, min_servers 0 and server "
                f"{{}} too (they are {self.min_servers} and {dict(self.server)})"
            )


def _check_role(role: str, demand: Resources, least: int, most: int) -> None:
    if not 1 <= most <= MOST_TASKS:
        raise BadInput(f"max_{role}s is {most}: give 1 to {MOST_TASKS}")
    if not 1 <= least <= most:
        raise BadInput(f"min_{role}s is {least}: give a number from 1 to max_{role}s, {most}")
    for resource, amount in demand.items():
        check_range(f"{role}: the amount of {resource}", amount, MOST_AMOUNT)
    if not any(demand.values()):
        raise BadInput(f"{role} takes nothing: name at least one resource, as in {{'cpu': 2}}")


def resource_names(nodes: Sequence[Node]) -> tuple[str, ...]:
    """Return the names of all resources that a cluster has, in alphabetical order."""
    return tuple(sorted({name for node in nodes for name in node.capacity}))


def check_fits(job: Job, nodes: Sequence[Node]) -> None:
    """Refuse a job whose worker or server fits no node, even an empty one.

    Raises:
        BadInput: with the task and the largest nodes.
    """
    for role, demand in (("worker", job.worker), ("server", job.server)):
        if not any(_fits(demand, node.capacity) for node in nodes):
            largest = {name: max(node.capacity.get(name, 0) for node in nodes) for name in resource_names(nodes)}
            raise BadInput(f"a {role} takes {dict(demand)}, which no node has; the most that nodes have is {largest}")


def _fits(demand: Resources, capacity: Resources) -> bool:
    return all(amount <= capacity.get(name, 0) for name, amount in demand.items())
