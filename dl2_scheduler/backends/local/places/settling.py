"""This module gives the tasks that were granted their virtual nodes, which they keep, by a placement policy.

A task that runs is moved where that pays and people let it (`TaskMover`). Its process only gets other cores: the nodes
are parts of one machine, so that nobody has to join or leave, and the move costs what it costs to fill caches anew.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dl2_scheduler.backends.local.holding import present_demands
from dl2_scheduler.backends.local.job_records import JobRecord, NodePlaces
from dl2_scheduler.backends.local.views import state_of
from dl2_scheduler.cluster.desk import LiveJobPhase
from dl2_scheduler.cluster.document.template import SLOTS
from dl2_scheduler.cluster.free_resources import SLACK
from dl2_scheduler.cluster.hardware.live_view import LiveJob, LiveNodes, live_view, plain_hardware
from dl2_scheduler.cluster.hardware.machines import Floats, Machines
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER
from dl2_scheduler.cluster.hardware.view import PlacementView
from dl2_scheduler.cluster.jobs import Node
from dl2_scheduler.cluster.placement.guarded_placement import GuardedPlacement, PlacementAnswer
from dl2_scheduler.cluster.placement.task_mover import TaskMover
from dl2_scheduler.cluster.placement.task_moves import MoveCost, TaskMove
from dl2_scheduler.cluster.snapshot import Allocation, Grant

PIN_COST = MoveCost(stopped=0.1, away=0.0, words="")
"""Of a move, as `benchmarks.move_cost` has measured it."""

NOWHERE: NodePlaces = ((), ())


@dataclass(frozen=True)
class LocalPlacement:
    """A `LocalPlacement` is what places the tasks of a local cluster, and the cores that its nodes share out.

    Attributes:
        policy: decides.
        cores: numbers of the cores that tasks may use.
        most_moves: tasks that may be moved to another node in a slot, as it pays.
        threads: those of the cores that are threads of the same core.
    """

    policy: GuardedPlacement
    cores: frozenset[int]
    most_moves: int = 0
    threads: tuple[frozenset[int], ...] = ()


@dataclass(frozen=True)
class Settled:
    """`Settled` grants have places for all their tasks.

    Attributes:
        allocation: what is done now: a job that finds no place keeps what it has, or waits.
        places: names of the nodes of each job's tasks, by the number of its record.
    """

    allocation: Allocation
    places: Mapping[int, NodePlaces] = field(default_factory=dict)


class Settling:
    """A `Settling` places what is granted to the jobs of a cluster whose tasks keep their nodes.

    Args:
        nodes: virtual.
        placement: decides.
        began: unix seconds: when the cluster began.
        most_moves: tasks that may be moved in a slot.
    """

    def __init__(self, nodes: Sequence[Node], placement: GuardedPlacement, began: float, most_moves: int = 0):
        self._names = tuple(node.name for node in nodes)
        self._index = {name: number for number, name in enumerate(self._names)}
        self._machines = Machines(tuple(plain_hardware(node.capacity[SLOTS], 0.0) for node in nodes))
        self._capacity = np.array([node.capacity[SLOTS] for node in nodes])
        self._placement, self._began = placement, began
        self._mover = TaskMover(placement, most_moves, lambda: PIN_COST)

    def settle(self, records: Sequence[JobRecord], allocation: Allocation, now: float) -> Settled:
        """Give places to what is granted: the slot waits for it, so that all questions have one bound.

        Args:
            records: of all jobs that go on, by submission.
            allocation: what was decided; jobs that are not in it are left alone, and keep what their owners want.
            now: unix seconds.
        """
        with self._placement.one_slot():
            return self._settle(records, allocation, now)

    def _settle(self, records: Sequence[JobRecord], allocation: Allocation, now: float) -> Settled:
        free = self._capacity.copy()
        each = [_Job(record, _grant(record, allocation)) for record in records]
        for job in each:
            job.keep(free, self._index)
        for job in each:
            job.adopt(free)
        view = self._view(each, free, now)
        answer = self._placement.place(view, self._names)
        grants = dict(allocation.grants)
        for index, job in enumerate(each):
            job.take(answer, index, free)
            if job.record.name in grants:
                grants[job.record.name] = job.granted(answer.reasons.get(index, ""), self._placement.name)
        decided = [job for job in each if job.record.name in grants and not job.record.left_alone]
        for name, why in self._move(each, decided, free, now):
            grants[name] = replace(grants[name], reason=_joined(grants[name].reason, why))
        return Settled(Allocation(grants), {job.record.number: job.names(self._names) for job in each})

    def _move(
        self, each: Sequence["_Job"], decided: Sequence["_Job"], free: Floats, now: float
    ) -> Iterator[tuple[str, str]]:
        """Move tasks of those jobs that the policy decides about where it pays; yields names of jobs, each with why."""
        there = [job for job in each if any(job.groups)]
        still = [index for index, job in enumerate(there) if job not in decided]
        for move in self._mover.moves(self._view(there, free, now, settled=True), still, self._names):
            there[move.job].move(move, free)
            yield there[move.job].record.name, move.why

    def _view(self, each: Sequence["_Job"], free: Floats, now: float, settled: bool = False) -> PlacementView:
        nodes = LiveNodes(self._names, self._machines, [(amount, 0.0) for amount in free.tolist()])
        seen = [job.seen_settled(self._names, self._began) if settled else job.seen(self._began) for job in each]
        return live_view(now - self._began, nodes, seen)


def _grant(record: JobRecord, allocation: Allocation) -> Grant:
    """Return what a job is to have: as granted, or as its owner wants it."""
    if not record.left_alone:
        return allocation.of(record.name)
    workers, servers = (claim.count for claim in present_demands(record))
    return Grant(workers, servers)


class _Job:
    """A `_Job` is a job while its tasks get their places.

    Args:
        record: of the job.
        grant: that it is to have.

    Attributes:
        groups: nodes of its workers and servers, as far as they have one.
    """

    def __init__(self, record: JobRecord, grant: Grant):
        self.record = record
        self.grant = grant
        self.groups: tuple[list[int], list[int]] = ([], [])
        spec = record.document.spec
        self._slots = (float(spec.workers.slots), float(spec.servers.slots))
        self._counts = (grant.workers, grant.servers) if grant.runs else (0, 0)
        self._kept = (0, 0)

    def keep(self, free: Floats, index: Mapping[str, int]) -> None:
        """Leave tasks where they are, as many of each role as are granted still, the oldest.

        One whose node is not there any more, or has become too small for it, is not left there.

        Args:
            free: slots of each node; changed.
            index: of the nodes, by name.
        """
        if not self.record.phase.has_processes:
            return
        for role in (WORKER, SERVER):
            for name in self.record.places[role][: self._counts[role]]:
                if name in index and self._fits(role, index[name], free):
                    self._put(role, index[name], free)

    def adopt(self, free: Floats) -> None:
        """Give tasks the emptiest node that run without one; those that nobody decides about even if they do not fit.

        Args:
            free: slots of each node; changed.
        """
        running = (self.record.workers, self.record.servers)
        for role in (WORKER, SERVER):
            most = self._counts[role] if self.record.left_alone else min(self._counts[role], running[role])
            while len(self.groups[role]) < most:
                node = int(np.argmax(free))
                if not (self.record.left_alone or self._fits(role, node, free)):
                    break  # the policy may find it a place, or the job goes on with less
                self._put(role, node, free)
        self._kept = len(self.groups[WORKER]), len(self.groups[SERVER])

    @property
    def missing(self) -> tuple[int, int]:
        """Tasks that are to get a place."""
        return self._counts[WORKER] - self._kept[WORKER], self._counts[SERVER] - self._kept[SERVER]

    def seen(self, began: float) -> LiveJob:
        """Return the job as a policy sees it.

        Args:
            began: unix seconds: when the cluster began.
        """
        record = self.record
        demand = ((self._slots[WORKER], 0.0), (self._slots[SERVER], 0.0))
        placed = (list(self.groups[WORKER]), list(self.groups[SERVER]))
        state = state_of(record, began)
        return LiveJob(state, record.number, demand, placed, self.missing, record.samples_per_second)

    def seen_settled(self, nodes: Sequence[str], began: float) -> LiveJob:
        """Return the job with the places that it has now; without a speed where they are new, or it is changing.

        Args:
            nodes: their names.
            began: unix seconds: when the cluster began.
        """
        record, seen = self.record, self.seen(began)
        whole = tuple(map(len, self.groups)) == (record.workers, record.servers)
        stays = record.phase is LiveJobPhase.RUNNING and whole and self.names(nodes) == record.places
        return replace(seen, missing=(0, 0), rate=seen.rate if stays else 0.0)

    def move(self, move: TaskMove, free: Floats) -> None:
        """Let tasks in one group go to another, of each role the newest.

        Args:
            move: which.
            free: slots of each node; changed.
        """
        for role in move.roles:
            own = self.groups[role]
            own[len(own) - 1 - own[::-1].index(move.source)] = move.target
            free[move.source] += self._slots[role]
            free[move.target] -= self._slots[role]

    def take(self, answer: PlacementAnswer, index: int, free: Floats) -> None:
        """Take the places that were found for it.

        Args:
            answer: of the policy.
            index: of the job in its view.
            free: slots of each node; changed.
        """
        for role, groups in enumerate(answer.places.groups.get(index, ())):
            for group in groups:
                self._put(role, int(group), free)

    def granted(self, reason: str, policy: str) -> Grant:
        """Return what the job gets, and why.

        Args:
            reason: of the places that it got; "": it got none.
            policy: the placement policy's name.
        """
        grant, counts = self.grant, (len(self.groups[WORKER]), len(self.groups[SERVER]))
        if reason:
            return replace(grant, reason=_joined(grant.reason, reason))
        if counts == (grant.workers, grant.servers):
            return grant
        what = f"{policy} found no place for its {self.missing[WORKER]} workers and {self.missing[SERVER]} servers"
        if counts[WORKER] and (counts[SERVER] or not grant.servers):
            held = f"held at {counts[0]}+{counts[1]} instead of {grant.workers}+{grant.servers}: {what} more"
            return Grant(*counts, _joined(held, grant.reason))
        return Grant(0, 0, _joined(f"waits: {what}", grant.reason))

    def names(self, nodes: Sequence[str]) -> NodePlaces:
        """Return the names of the nodes of its tasks."""
        workers, servers = (tuple(nodes[group] for group in groups) for groups in self.groups)
        return workers, servers

    def _fits(self, role: int, node: int, free: Floats) -> bool:
        return bool(free[node] >= self._slots[role] - SLACK)

    def _put(self, role: int, node: int, free: Floats) -> None:
        self.groups[role].append(node)
        free[node] -= self._slots[role]


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
