"""This module says what the virtual nodes carry. It is pure."""

from collections.abc import Iterator, Mapping, Sequence

from dl2_scheduler.backends.local.holding import present_demands
from dl2_scheduler.backends.local.job_records import JobRecord
from dl2_scheduler.backends.local.places.placing import Placement, place
from dl2_scheduler.backends.local.runtime import RunningTask, Usage
from dl2_scheduler.cluster.desk import ClusterLoad, NodeLoad, TaskLoad
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.jobs import Node

_UNKNOWN = Usage(0.0, 0.0, 0)


def placed(records: Sequence[JobRecord], nodes: Sequence[Node], rule: NodeRule) -> Placement:
    """Return where the tasks of all active jobs are counted: those of held jobs first, then by submission.

    Args:
        records: the records of the jobs.
        nodes: virtual.
        rule: the rule by which tasks find their node.
    """
    by_hand = sorted(records, key=lambda record: not record.left_alone)
    return place(nodes, [claim for record in by_hand for claim in present_demands(record)], rule)


def load_of(
    placement: Placement, tasks: Mapping[str, Sequence[RunningTask]], usage: Mapping[int, Usage], isolation: str
) -> ClusterLoad:
    """Return what nodes carry and tasks use, for operators.

    Args:
        placement: the placement of all tasks.
        tasks: the tasks that have joined, by job.
        usage: what they use, by pid; one that is not in it has just begun, or ended.
        isolation: how tasks are kept to their share.
    """
    nodes = [
        NodeLoad(node.name, node.capacity, {name: amount - free[name] for name, amount in node.capacity.items()})
        for node, free in zip(placement.nodes, placement.free, strict=True)
    ]
    return ClusterLoad(nodes, list(_tasks(placement, tasks, usage)), isolation)


def _tasks(
    placement: Placement, tasks: Mapping[str, Sequence[RunningTask]], usage: Mapping[int, Usage]
) -> Iterator[TaskLoad]:
    """Yield what each task uses, on the node that it is counted on.

    A job's nth task of a role is the nth that is counted; one more, which is leaving, is counted nowhere.
    """
    for job, members in tasks.items():
        places = {key: iter(names) for key, names in placement.where.items()}
        for task in members:
            used = usage.get(task.pid, _UNKNOWN)
            node = next(places.get((job, task.role), iter(())), "")
            yield TaskLoad(job, task.id, node, used.cores, used.limit_cores, used.memory_bytes)
