"""This module predicts what many places of one job would make of all jobs' speeds, by the pooled model.

A task that moves changes what the tasks of two groups find around them, and nothing else. So only those tasks are read
anew, and the jobs that have one of them: of 30 servers' jobs a handful.
"""

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER
from dl2_scheduler.policies.learnt.pooled_network import F32, PooledInputs, PooledNetwork

_ROLES = WORKER, SERVER
Where = tuple[Ints, Ints]
"""A try and a job, of each of some rows."""


def tried_logarithms(
    network: PooledNetwork, inputs: PooledInputs, outputs: F32, job: int, groups: Ints
) -> tuple[Where, Floats]:
    """Return the logarithms of the speeds that tries change, and whose they are.

    Args:
        network: that predicts.
        inputs: of all tasks, as they lie before.
        outputs: what the network makes of each of them, (tasks, units).
        job: whose tasks lie elsewhere.
        groups: its tasks' groups in each try, in the order of its tasks, (tries, its tasks).
    """
    return _Tries(network, inputs, outputs, job, groups).logarithms()


class _Tries:
    """These `_Tries` are the places of one job that are tried.

    Args:
        network: see `tried_logarithms`, and so the others.
        inputs: see there.
        outputs: see there.
        job: see there.
        groups: see there.
    """

    def __init__(self, network: PooledNetwork, inputs: PooledInputs, outputs: F32, job: int, groups: Ints):
        self._network, self._inputs, self._job, self._groups = network, inputs, job, groups
        self._before = outputs
        self._mine = np.flatnonzero(self._inputs.job == job)
        self._embedded = network.arrays["kind.weight"][self._inputs.kind]
        tries, count = len(groups), int(max(self._inputs.group.max(), groups.max())) + 1
        here = self._inputs.group[self._mine]
        self._sums = np.zeros((tries, count, self._embedded.shape[1]), dtype=np.float32)
        np.add.at(self._sums[0], self._inputs.group, self._embedded)
        self._sums[1:] = self._sums[0]
        changed = np.zeros((tries, count), dtype=np.bool_)
        rows = np.arange(tries)
        for index, task in enumerate(self._mine):
            self._sums[:, here[index]] -= self._embedded[task]
            self._sums[rows, groups[:, index]] += self._embedded[task]
            moves = groups[:, index] != here[index]
            changed[moves, here[index]] = True
            changed[rows[moves], groups[moves, index]] = True
        anew: NDArray[np.bool_] = changed[:, self._inputs.group]
        anew[:, self._mine] = True
        self._anew = anew

    def logarithms(self) -> tuple[Where, Floats]:
        """Return what the tries change."""
        touched = np.zeros((len(self._groups), len(self._inputs.model)), dtype=np.bool_)
        tries, tasks = self._anew.nonzero()
        touched[tries, self._inputs.job[tasks]] = True
        units = self._outputs(tries, tasks)
        where: Where = touched.nonzero()  # type: ignore[assignment]
        pooled = [self._counts(where), self._network.arrays["model.weight"][self._inputs.model[where[1]]]]
        pooled.append(units[where[0], self._inputs.first[where[1]]])
        for role in _ROLES:
            pooled += self._pooled(units, touched, role)
        values = self._network.layers("job", np.concatenate(pooled, axis=1), 3)[:, 0].astype(float)
        return where, values

    def _outputs(self, tries: Ints, tasks: Ints) -> F32:
        """Return what each task makes of what lies around it, (tries, tasks, units).

        Args:
            tries: of the tasks that are read anew.
            tasks: these.
        """
        own = self._embedded[tasks]
        of_own, group = self._own_sums()[tries, tasks], self._places()[tries, tasks]
        around = np.concatenate([own, of_own - own, self._sums[tries, group] - of_own], axis=1)
        units = np.repeat(self._before[None], len(self._groups), axis=0)
        units[tries, tasks] = np.maximum(self._network.layers("task", around, 2), 0)
        return units

    def _places(self) -> Ints:
        """Return the group of each task, (tries, tasks)."""
        places = np.repeat(self._inputs.group[None], len(self._groups), axis=0)
        places[:, self._mine] = self._groups
        return places

    def _own_sums(self) -> F32:
        """Return the sum over the tasks of the same job in the same group, (tries, tasks, embedded)."""
        sums = np.zeros((int(self._inputs.own.max()) + 1, self._embedded.shape[1]), dtype=np.float32)
        np.add.at(sums, self._inputs.own, self._embedded)
        found: F32 = np.repeat(sums[self._inputs.own][None], len(self._groups), axis=0)
        together = self._groups[:, :, None] == self._groups[:, None, :]
        found[:, self._mine] = together.astype(np.float32) @ self._embedded[self._mine]
        return found

    def _counts(self, where: Where) -> F32:
        """Return `PooledInputs.counts` of the jobs that are touched; those of the one that moves are others."""
        found: F32 = self._inputs.counts[where[1]].copy()
        moved = np.flatnonzero(where[1] == self._job)
        order = np.sort(self._groups, axis=1)
        found[moved, 3] = np.log(1 + (np.diff(order, axis=1) != 0).sum(axis=1))[where[0][moved]]
        workers, servers = (self._groups[:, self._inputs.role[self._mine] == role] for role in _ROLES)
        shared = (workers[:, :, None] == servers[:, None, :]).mean(axis=(1, 2))
        found[moved, 4] = (1.0 - shared)[where[0][moved]]
        return found

    def _pooled(self, units: F32, touched: NDArray[np.bool_], role: int) -> list[F32]:
        """Return the mean and the most over the tasks of a role, of each job that is touched.

        Args:
            units: see `_outputs`.
            touched: which jobs, (tries, jobs).
            role: of the tasks.
        """
        of_role = np.flatnonzero(self._inputs.role == role)
        order = of_role[np.argsort(self._inputs.job[of_role], kind="stable")]
        tries, tasks = touched[:, self._inputs.job[order]].nonzero()
        rows = units[tries, order[tasks]]
        key = tries * touched.shape[1] + self._inputs.job[order[tasks]]
        start = np.flatnonzero(np.diff(key, prepend=-1))
        sums = np.add.reduceat(rows, start, axis=0)
        return [sums / np.diff(np.append(start, len(key)))[:, None], np.maximum.reduceat(rows, start, axis=0)]
