"""This module moves tasks of ElasticJobs to other nodes: their pods are deleted here, and bound anew there.

A pod that is deleted in order is drained: its worker or server hands over what it has, and leaves by a plan of its
job's coordinator. The operator makes another pod, as the job is to have as many as before, and the binder gives it the
node that the move was for, where it has kept the room meanwhile (`expected_pods`). If that node is gone by then, or
refuses the pod, or none came in time, it goes where any other would. So a job has a task less from the leaving to the
joining; the last of its role leaves when the other has joined.

Only jobs that were scaled while they trained here are moved: of them it is known that their workers may come and go,
and what a join costs here. A pod with volumes, or that asks about pods beside it, stays.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np

from dl2_scheduler.backends.kube.apiserver.objects import JobInfo, PodInfo
from dl2_scheduler.backends.kube.apiserver.paced_writes import NotLeading, PacedWriter
from dl2_scheduler.backends.kube.placement.expected_pods import ExpectedPods, TargetRoom
from dl2_scheduler.backends.kube.placement.free_resources import FreeNodeResources
from dl2_scheduler.backends.kube.placement.policy_places import PolicyPlaces, seen_resources
from dl2_scheduler.backends.kube.placement.view import View
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.placement.task_mover import TaskMover
from dl2_scheduler.cluster.placement.task_moves import TaskMove
from dl2_scheduler.cluster.snapshot import Allocation, JobId
from k8s.foundation.api_server import ApiError
from k8s.foundation.names import SERVER, WORKER

log = logging.getLogger(__name__)

_ROLES = (WORKER, SERVER)


class PodMover:
    """A `PodMover` has tasks moved where it pays, once in each slot.

    Args:
        view: of the cluster.
        writer: acts.
        mover: says which tasks move.
        expected: takes where they go.
        movable: returns the jobs whose tasks may come and go.
    """

    def __init__(
        self,
        view: View,
        writer: PacedWriter,
        mover: TaskMover,
        expected: ExpectedPods,
        movable: Callable[[], Collection[JobId]],
    ):
        self._view, self._writer, self._mover = view, writer, mover
        self._expected, self._movable = expected, movable

    def settle(self, allocation: Allocation) -> Allocation:
        """Move what pays, and return a decision with why; whatever fails, the slot goes on without it.

        Args:
            allocation: the decision of the slot.
        """
        grants = dict(allocation.grants)
        try:
            for job, why in self._move(allocation):
                grants[job] = replace(grants[job], reason="; ".join(filter(None, (grants[job].reason, why))))
        except NotLeading as error:
            log.warning("nothing is moved: %s", error)
        except Exception:
            log.exception("nothing is moved")
        return Allocation(grants)

    def _move(self, allocation: Allocation) -> list[tuple[JobId, str]]:
        """Move what pays; return the jobs, each with why."""
        nodes, pods, jobs = self._view.nodes(), self._view.pods(), self._view.jobs()
        bound = [pod for pod in pods if pod.node]
        tasks: dict[tuple[str, str], list[PodInfo]] = {job.key: [] for job in jobs}
        for pod in pods:
            if pod.role in _ROLES and pod.key in tasks:
                tasks[pod.key].append(pod)
        steady = {job.key for job in jobs if _is_steady(job, tasks[job.key], allocation)}
        names = {name for job in jobs for role in (job.workers, job.servers) for name in role.requests}
        resources = FreeNodeResources(nodes, bound, sorted(names | seen_resources(nodes)), NodeRule.SPREAD)
        TargetRoom(resources, jobs, bound, self._expected.all())  # of moves that are not over
        places = PolicyPlaces(self._mover.policy, nodes, bound, jobs, resources)
        view, here = places.running(steady)
        movable = self._movable()
        still = [index for index, job in enumerate(here) if not _is_movable(job, tasks[job.key], allocation, movable)]
        done: list[tuple[JobId, str]] = []
        for move in self._mover.moves(view, still, [node.name for node in nodes]):
            job, to = here[move.job], nodes[move.target].name
            if self._carry_out(job, move, nodes[move.source].name, to, tasks[job.key]):
                done.append((job.id, move.why))
        return done

    def _carry_out(self, job: JobInfo, move: TaskMove, source: str, target: str, own: Sequence[PodInfo]) -> bool:
        """Delete the newest pods of the roles that move; return whether one was."""
        here = [pod for pod in own if pod.node == source]
        moved = False
        for role in np.unique(move.roles).tolist():
            alike = sorted((pod for pod in here if pod.role == _ROLES[role]), key=lambda pod: (pod.created, pod.name))
            for pod in alike[-move.roles.count(role) :]:
                self._expected.add(job, pod, target)
                try:
                    self._writer.delete(pod)
                except NotLeading:
                    self._expected.stays(pod)
                    raise
                except ApiError as error:
                    self._expected.stays(pod)
                    log.warning("%s/%s could not be moved: %s", pod.namespace, pod.name, error)
                    continue
                moved = True
                log.info("%s/%s: deleted, to be made anew on %s: %s", pod.namespace, pod.name, target, move.why)
        if moved:
            try:
                self._writer.tell_job(job, "Moved", move.why, warning=False)
            except NotLeading:
                raise
            except ApiError as error:
                log.warning("why a task of %s was moved could not be written: %s", job.id, error)
        return moved


def _is_steady(job: JobInfo, own: Sequence[PodInfo], allocation: Allocation) -> bool:
    """Return whether a job trains, with as many pods as it has had and is to have, none of which comes or goes.

    Args:
        job: whose.
        own: its workers and servers.
        allocation: the decision of the slot.
    """
    counts = tuple(sum(pod.role == role for pod in own) for role in _ROLES)
    grant = allocation.of(job.id) if job.scaled else None
    told = job.status
    return (
        told.phase == "Running"
        and counts == (told.workers, told.servers)
        and (grant is None or counts == (grant.workers, grant.servers))
        and all(pod.node and not pod.deleting for pod in own)
    )


def _is_movable(job: JobInfo, own: Sequence[PodInfo], allocation: Allocation, movable: Collection[JobId]) -> bool:
    """Return whether tasks of a job may move at all.

    Args:
        job: whose.
        own: its workers and servers.
        allocation: the decision of the slot.
        movable: jobs whose tasks may come and go.
    """
    tied = any(pod.claims or pod.constraints.neighbours for pod in own)
    return job.scaled and job.id in allocation.grants and not tied and job.id in movable
