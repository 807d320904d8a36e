"""This module says how much slower tasks compute because they share a socket: the mechanistic world's contention.

Every socket has cores, a cache, memory and PCIe. What tasks need of its cores, memory and PCIe is divided max-min: who
needs little gets it, the others get alike. Two threads of a core give less than two cores (a knee at the physical
cores), and what does not fit into the cache is fetched from memory, again and again.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dl2_scheduler.cluster.compiled import compiled
from dl2_scheduler.cluster.hardware.machines import Floats, Ints, Machines
from dl2_scheduler.cluster.hardware.placements import PlacementArrays
from dl2_scheduler.sim.placed.traits import Needs

_SECOND_THREAD = 0.3
"""What the second thread of a core adds to it, as a part of a core."""
_FETCHED_AGAIN = 1.0
"""What a task whose data is not in the cache at all needs more of the memory, as a part of what it needs alone."""
_GBPS = 8.0  # Gb/s of a GB/s


@dataclass(frozen=True)
class Contention:
    """See `Interference`, of the mechanistic world.

    Attributes:
        machines: on which tasks lie.
        needs: of the kinds of tasks.
        strength: by which each slowdown is multiplied; 0: tasks do not feel each other.
    """

    machines: Machines
    needs: Needs
    strength: float = 1.0

    def slowdown(self, placements: PlacementArrays) -> Floats:
        """See `Interference.slowdown`: of the cores' and memory's work."""
        compute: Floats = self.slowdowns(placements)[0]
        return compute

    def slowdowns(self, placements: PlacementArrays) -> Floats:
        """Return what computing and what moving data to the GPU take more than alone, as a part of that, (2, tasks)."""
        kind = 2 * placements.model[placements.job] + placements.role
        return self.strength * slowdowns(placements.group, self.amounts[:, kind], self.limits)

    @cached_property
    def amounts(self) -> Floats:
        """The cpu, memory, cache, sensitivity and PCIe of each kind of task, (5, kinds)."""
        needs = self.needs
        return np.stack([needs.cpu, needs.memory, needs.cache, needs.sensitivity, needs.pcie])

    @cached_property
    def limits(self) -> Floats:
        """The cores, threads, memory (GB/s), cache (MB) and PCIe (GB/s) of each group, (groups, 5)."""
        return np.array(
            [[s.cores, s.cpus, s.memory_gbps / _GBPS, s.cache_mb, s.pcie_gbps / _GBPS] for s in self.machines.sockets]
        )


@compiled
def slowdowns(group: Ints, needs: Floats, limits: Floats) -> Floats:
    """Return what tasks' computing and PCIe transfers take more than alone, as a part of that, (2, tasks).

    Args:
        group: of each task, (tasks,).
        needs: cpu, memory, cache, sensitivity and PCIe of each task, (5, tasks).
        limits: see `Contention.limits`.
    """
    found = np.zeros((2, len(group)))
    start = np.zeros(len(limits) + 1, dtype=np.int64)
    for socket in group:
        start[socket + 1] += 1
    start = np.cumsum(start)
    order, filled = np.empty(len(group), dtype=np.int64), start[:-1].copy()
    for task in range(len(group)):
        order[filled[group[task]]] = task
        filled[group[task]] += 1
    for socket in range(len(limits)):
        if start[socket] < start[socket + 1]:
            _on_socket(order[start[socket] : start[socket + 1]], needs, limits[socket], found)
    return found


@compiled
def _on_socket(tasks: Ints, needs: Floats, limits: Floats, found: Floats) -> None:
    """Find the slowdowns of the tasks of one socket.

    Args:
        tasks: their indices.
        needs: see `slowdowns`.
        limits: of the socket, (5,).
        found: gets them, (2, tasks).
    """
    here = needs[:, tasks]
    working_set = here[2].sum()
    missed = max(0.0, 1.0 - limits[3] / working_set) if working_set > 0 else 0.0
    memory = here[1] * (1.0 + _FETCHED_AGAIN * missed)
    cores = fair_level(here[0], throughput(here[0].sum(), limits[0], limits[1]))
    lanes, links = fair_level(memory, limits[2]), fair_level(here[4], limits[4])
    for index in range(len(tasks)):
        scarcest = max(1.0, here[0, index] / cores, memory[index] / lanes)
        found[0, tasks[index]] = scarcest * (1.0 + here[3, index] * missed) - 1.0
        found[1, tasks[index]] = max(1.0, here[4, index] / links) - 1.0


@compiled
def throughput(wanted: float, cores: float, threads: float) -> float:
    """Return what a processor's threads do together, in cores, where tasks want to keep so many busy.

    Args:
        wanted: threads that have work.
        cores: physical ones.
        threads: all of them.
    """
    return min(wanted, cores) + _SECOND_THREAD * min(max(wanted - cores, 0.0), threads - cores)


@compiled
def fair_level(needs: Floats, capacity: float) -> float:
    """Return what nobody gets more of where a resource is divided max-min; infinite where there is enough for all.

    Args:
        needs: of each who shares it.
        capacity: that is divided.
    """
    if needs.sum() <= capacity * (1.0 + 1e-12):
        return np.inf
    left = capacity
    ordered = np.sort(needs)
    for index in range(len(ordered)):
        level = left / (len(ordered) - index)
        if ordered[index] >= level:
            return level
        left -= ordered[index]
    return np.inf
