"""This module records what happened in a run, slot by slot."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.sim.lanes import Counts, Floats
from dl2_scheduler.sim.simulator import SimulatedCluster, steps


@dataclass(frozen=True)
class Record:
    """A record tells of a finished run.

    Attributes:
        jobs: by arrival, then id: the order of all arrays.
        nodes: machines.
        slot_seconds: length of a slot.
        arrival: of each job, in slots.
        finish: of each job, in slots.
        workers: of each job in each slot, (slots, jobs).
        servers: the same.
    """

    jobs: Sequence[Job]
    nodes: Sequence[Node]
    slot_seconds: float
    arrival: Floats
    finish: Floats
    workers: Counts
    servers: Counts


def record(cluster: SimulatedCluster, policy: AllocationPolicy, rule: NodeRule) -> Record:
    """Run until every job has ended, and return the record. Raises what `steps` does.

    Args:
        cluster: with the jobs, at its start.
        policy: decides.
        rule: by which tasks find their node.
    """
    lanes = cluster.lanes
    nodes = cluster.snapshot().nodes
    counts = [(lanes.workers[0], lanes.servers[0]) for _ in steps(cluster, policy, rule)]
    workers, servers = (np.array(each) for each in zip(*counts, strict=True))
    return Record(lanes.jobs[0], nodes, lanes.slot_seconds, lanes.arrival[0], lanes.finish[0], workers, servers)
