"""Chic in a cluster: asked at events, it counts tasks and leaves it to others where they go (sections 4.1 and 4.4)."""

import numpy as np

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.interfaces import PolicyTrigger
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import Allocation, JobId, Snapshot
from dl2_scheduler.policies.chic.network import BEST, SAMPLED
from dl2_scheduler.policies.chic.phase import (
    ABSENT,
    NO_FINES,
    Ints,
    PhaseJobs,
    PhaseSteps,
    PhaseView,
    actions_of,
    decide,
    inputs_of,
)
from dl2_scheduler.policies.chic.weights import ChicWeights
from dl2_scheduler.policies.rules.estimates import SpeedEstimates


class Chic:
    """See `AllocationPolicy`; the cluster's nodes are one pool to it, and what does not fit them is left out.

    Args:
        weights: what was learnt.
        speeds: by which it knows that no job gets faster by one more task; None: it does not look at that.
        seed: of the draws, where it draws.

    Attributes:
        trigger: when it is asked.
    """

    trigger = PolicyTrigger.EVENT

    def __init__(self, weights: ChicWeights, speeds: SpeedEstimates | None = None, seed: int = 0):
        if weights.form.until_no_gain and speeds is None:
            raise ValueError("a phase that ends where no job gets faster needs speeds")
        self._form, self._network, self._speeds = weights.form, weights.network, speeds
        self._random = np.random.default_rng(seed)
        self._decided: tuple[tuple[JobId, ...], Ints] = (), np.zeros((0, 2), dtype=np.int64)
        rules = self._form.rules
        width, actions = inputs_of(rules), actions_of(rules)
        none = np.empty((0, width)), np.empty(0, dtype=np.int64), np.empty((0, actions), dtype=np.bool_)
        self._no_steps = PhaseSteps(*none)

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """See `AllocationPolicy.allocate`; while the visible jobs are the same they keep what they have."""
        if self._speeds is not None:
            self._speeds.observe(snapshot.reports)
        if not snapshot.jobs:
            return Allocation()
        visible = tuple(state.job.id for state in snapshot.jobs[: self._form.visible])
        if visible != self._decided[0]:
            self._decided = visible, self._phase(snapshot, room)
        for number, (workers, servers) in enumerate(self._decided[1][: len(visible)].tolist()):
            while workers and servers and not room.give(number, workers, servers):
                workers, servers = (workers - 1, servers) if workers >= servers else (workers, servers - 1)
        return room.allocation()

    def _phase(self, snapshot: Snapshot, room: FreeResources) -> Ints:
        """Return the workers and servers of the visible jobs."""
        form = self._form
        states = snapshot.jobs[: form.visible]
        shown = np.full(form.visible, ABSENT)
        shown[: len(states)] = range(len(states))
        view = PhaseView(
            shown,
            np.array([state.remaining_epochs for state in states]),
            len(snapshot.jobs) - len(states),
            room.capacity.sum(axis=0),
        )
        how = SAMPLED if form.sampled else BEST
        jobs = self._jobs([state.job for state in states], room)
        counts, _, _ = decide(form.rules, self._network, jobs, view, how, self._random, NO_FINES, self._no_steps, 0)
        return counts

    def _jobs(self, jobs: list[Job], room: FreeResources) -> PhaseJobs:
        models = self._form.models
        most = np.array([(job.max_workers, job.max_servers) for job in jobs])
        rates = np.zeros((len(jobs), most[:, 1].max() + 1, most[:, 0].max() + 1))
        rates[:, 1:, 1:] = 1.0  # where nobody knows speeds, all run
        if self._speeds is not None:
            for number, job in enumerate(jobs):
                grid = np.maximum(self._speeds.grid(job), 0.0)
                rates[number] = 0.0
                rates[number, : grid.shape[0], : grid.shape[1]] = grid / job.samples_per_epoch
        return PhaseJobs(
            np.array([models.index(job.model) if job.model in models else ABSENT for job in jobs]),
            np.stack([np.stack([room.demands[role][number] for role in (0, 1)]) for number in range(len(jobs))]),
            rates,
            most,
            np.full(len(jobs), self._form.scale),
        )
