"""This module holds Harmony's network (INFOCOM 2019, section IV), and the placement policy that it makes.

A fully connected layer of 32 units that all rows share reads each job and each server (its width is not in the paper);
three hidden layers of 196, 196 and 128 units read all of these, so that rows of jobs and of servers are learnt one by
one. The value network is the policy's twin with one output.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from dl2_scheduler.cluster.hardware.machines import Ints
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.learning.placement.harmony.tasks import PLACED, SEEN, allow, group_row, job_row, look
from dl2_scheduler.learning.placement.lockstep.clusters import LockstepClusters, put
from dl2_scheduler.learning.placement.lockstep.tasks import Mask
from dl2_scheduler.learning.placement.lockstep.view import cluster_of
from dl2_scheduler.policies.learnt.placer import F32
from dl2_scheduler.policies.placement.greedy_fill import JobOrder

_ROW = 32
HIDDEN = (196, 196, 128)


class HarmonyNet(nn.Module):
    """This is Harmony's network, for so many models and groups.

    Args:
        models: L.
        groups: M.
        hidden: units of the hidden layers.
        value: it says what a state is worth; else what each action scores.
    """

    def __init__(self, models: int, groups: int, hidden: tuple[int, ...] = HIDDEN, value: bool = False):
        super().__init__()
        self.job, self.server = nn.Linear(job_row(models), _ROW), nn.Linear(group_row(), _ROW)
        layers: list[nn.Module] = []
        width = (SEEN + groups) * _ROW
        for units in hidden:
            layers += [nn.Linear(width, units), nn.ReLU()]
            width = units
        self.layers = nn.Sequential(*layers, nn.Linear(width, 1 if value else 2 * PLACED * groups))

    def forward(self, jobs: Tensor, servers: Tensor) -> Tensor:
        """Compute scores of actions, (rows, 2 * PLACED * groups), or values, (rows, 1).

        Args:
            jobs: see `tasks.look`, (rows, SEEN, job_row).
            servers: see there, (rows, groups, group_row).
        """
        rows = torch.cat([torch.relu(self.job(jobs)).flatten(1), torch.relu(self.server(servers)).flatten(1)], dim=1)
        found: Tensor = self.layers(rows)
        return found

    def best(self, jobs: F32, servers: F32, allowed: Mask) -> Ints:
        """Return the best allowed action of each row, (rows,).

        Args:
            jobs: see `forward`.
            servers: see there.
            allowed: whether each action can be chosen, (rows, 2 * PLACED * groups).
        """
        with torch.no_grad():
            scores = self(torch.from_numpy(jobs), torch.from_numpy(servers)).numpy()
        found: Ints = np.where(allowed, scores, -np.inf).argmax(axis=1)
        return found


@dataclass(frozen=True)
class HarmonyPlacer:
    """See `PlacementPolicy`: Harmony's network decides, the best action each time.

    Attributes:
        net: of the policy.
    """

    net: HarmonyNet

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`."""
        clusters = cluster_of(view, JobOrder.ARRIVAL)
        count = len(view.free)
        allowed = np.zeros((1, 2 * PLACED * count), dtype=bool)
        while allow(clusters, 0, allowed[0]):
            jobs, servers = state_of(clusters, view)
            row, rest = divmod(int(self.net.best(jobs, servers, allowed)[0]), 2 * count)
            put(clusters, 0, int(clusters.order[0, row]), rest // count, rest % count)
        return places_of(clusters)


def state_of(clusters: LockstepClusters, view: PlacementView) -> tuple[F32, F32]:
    """Return what the network reads of a view's cluster, as far as tasks have places: jobs, servers."""
    jobs = np.empty((1, SEEN, job_row(len(view.models))), dtype=np.float32)
    servers = np.empty((1, len(view.free), group_row()), dtype=np.float32)
    look(clusters, view.machines.capacity, np.zeros(1, dtype=np.int64), jobs, servers)
    return jobs, servers


def places_of(clusters: LockstepClusters) -> Places:
    """Return the places of the new jobs of a view's cluster; the server that came first is the first."""
    found = {}
    for job in clusters.order[0, : min(PLACED, int(clusters.waiting[0]))].tolist():
        own, first = clusters.own[0, job], int(clusters.first[0, job])
        if own.sum():
            workers, servers = (np.repeat(np.arange(len(own)), own[:, role]).tolist() for role in (WORKER, SERVER))
            servers.sort(key=lambda group: group != first)
            found[job] = (tuple(workers), tuple(servers))
    return Places(found)
