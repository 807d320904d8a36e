"""In which configurations a job can run in a cluster, and how fast it is alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import SLACK, vector
from dl2_scheduler.cluster.jobs import Job, Node, resource_names
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.sim.lanes import Floats

_LEAST = 1e-300


@dataclass(frozen=True)
class Configurations:
    """These are a job's configurations, each with no more tasks than the nodes, taken as one, can hold.

    Attributes:
        rate: part of the job's work that a slot does, (configurations,).
        use: of the cluster's resources, 1 is all of one, (configurations, resources).
    """

    rate: Floats
    use: Floats

    def efficient(self) -> list[int]:
        """Return those that no mixture of others undercuts in time and in every resource, for the same work.

        Whatever another one does, that mixture can do instead, so that a linear program needs no other.
        """
        cost = np.column_stack([np.ones_like(self.rate), self.use]) / self.rate[:, None]
        undercut = (cost[:, None] >= cost).all(axis=2) & (cost[:, None] > cost).any(axis=2)
        kept: list[int] = np.flatnonzero(~undercut.any(axis=1)).tolist()
        for number in list(kept):
            others = [each for each in kept if each != number]
            if others and _has_mixture(cost[others], cost[number]):
                kept = others
        return kept

    def only(self, kept: Sequence[int]) -> "Configurations":
        """Return some of them."""
        return Configurations(self.rate[kept], self.use[kept])


def _has_mixture(costs: Floats, limit: Floats) -> bool:
    """Return whether a weighted mean of rows is nowhere over the limit."""
    unit = np.where(limit > 0, limit, np.maximum(costs.max(axis=0), _LEAST))  # the solver's tolerance is absolute
    weights = np.zeros(len(costs))
    found = linprog(weights, A_ub=(costs / unit).T, b_ub=limit / unit, A_eq=np.ones((1, len(costs))), b_eq=[1.0])
    return bool(found.status == 0)


def configurations(job: Job, nodes: Sequence[Node], speeds: Speeds, slot_seconds: float) -> Configurations:
    """Return all configurations in which a job runs.

    Args:
        job: any.
        nodes: machines, taken as one.
        speeds: of the models.
        slot_seconds: length of a slot.

    Raises:
        BadInput: there is none.
    """
    names = resource_names(nodes)
    total = np.sum([vector(node.capacity, names) for node in nodes], axis=0)
    grid = speeds.grid_of(job)
    servers, workers = np.nonzero(grid > 0)
    amounts = np.outer(servers, vector(job.server, names)) + np.outer(workers, vector(job.worker, names))
    fits = (amounts <= total + SLACK).all(axis=1)
    if not fits.any():
        tasks = "worker and server" if job.has_servers else "worker"
        raise BadInput(f"job {job.id}: all nodes together hold no {tasks} of it with a speed above 0")
    rate = grid[servers, workers][fits] * slot_seconds / (job.epochs * job.samples_per_epoch)
    return Configurations(rate, amounts[fits] / np.maximum(total, _LEAST))


@dataclass(frozen=True)
class Alone:
    """This holds how long jobs take, each with the cluster to itself; in slots, (jobs,).

    Attributes:
        arrival: since the cluster began.
        wait: from the arrival to the start of a slot.
        shortest: time in service in the fastest configuration.
    """

    arrival: Floats
    wait: Floats
    shortest: Floats

    @property
    def times(self) -> Floats:
        """From the arrival to the end."""
        return self.wait + self.shortest


def alone(jobs: Sequence[Job], ways: Sequence[Configurations], slot_seconds: float) -> Alone:
    """Return how long jobs take where there is no other.

    Args:
        jobs: any.
        ways: configurations of each.
        slot_seconds: length of a slot.
    """
    arrival = np.array([job.arrival / slot_seconds for job in jobs])
    return Alone(arrival, np.ceil(arrival) - arrival, np.array([1 / way.rate.max() for way in ways]))


def seconds_alone(job: Job, nodes: Sequence[Node], speeds: Speeds) -> float:
    """Return the seconds that a job takes in its best configuration, with the cluster to itself.

    Args:
        job: any.
        nodes: machines, taken as one.
        speeds: of the models.

    Raises:
        BadInput: it runs in no configuration.
    """
    return float(1 / configurations(job, nodes, speeds, 1.0).rate.max())
