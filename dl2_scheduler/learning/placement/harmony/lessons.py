"""This module lets Harmony's network imitate a planner first, as its authors' DL2 does and their Harmony does not."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.learning.placement.harmony.network import HarmonyNet, state_of
from dl2_scheduler.learning.placement.harmony.tasks import PLACED, allow
from dl2_scheduler.learning.placement.imitation import next_group
from dl2_scheduler.learning.placement.lockstep.clusters import put
from dl2_scheduler.learning.placement.lockstep.tasks import Mask, next_role
from dl2_scheduler.learning.placement.lockstep.view import cluster_of
from dl2_scheduler.policies.learnt.placer import F32
from dl2_scheduler.policies.placement.greedy_fill import JobOrder


@dataclass
class HarmonyChoices:
    """See `NoteTaker`: these are a planner's decisions as Harmony's actions, jobs by arrival."""

    inputs: list[tuple[F32, F32, Mask]] = field(default_factory=list)
    chosen: list[int] = field(default_factory=list)

    def add(self, view: PlacementView, places: Places) -> None:
        """Take note of a planner's places; what Harmony has no action for is left out, and placed nevertheless."""
        clusters, count = cluster_of(view, JobOrder.ARRIVAL), len(view.free)
        allowed = np.zeros(2 * PLACED * count, dtype=bool)
        for row, job in enumerate(clusters.order[0, : min(PLACED, int(clusters.waiting[0]))].tolist()):
            left = [list(groups) for groups in places.groups.get(job, ((), ()))]
            while any(left):
                own = clusters.own[0, job]
                role = next_role(int(own[:, WORKER].sum()), int(own[:, SERVER].sum()), clusters.asked[0, job])
                group = next_group(left[role], set(np.flatnonzero(own.any(axis=1)).tolist()))
                action = (row * 2 + role) * count + group
                allow(clusters, 0, allowed)
                if allowed[action]:
                    jobs, servers = state_of(clusters, view)
                    self.inputs.append((jobs[0], servers[0], allowed.copy()))
                    self.chosen.append(action)
                put(clusters, 0, job, role, group)


def fit_harmony(
    net: HarmonyNet, lessons: HarmonyChoices, epochs: int, seed: int, rate: float = 1e-3, batch: int = 256
) -> None:
    """Fit a network to a planner's choices.

    Args:
        net: changed.
        lessons: the choices.
        epochs: passes over them.
        seed: of the order.
        rate: of Adam at the start; it falls to nothing along a cosine.
        batch: choices of an update.
    """
    jobs, servers, allowed = (torch.from_numpy(np.stack(each)) for each in zip(*lessons.inputs, strict=True))
    chosen = torch.tensor(lessons.chosen)
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * -(-len(chosen) // batch))
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        for which in torch.split(torch.from_numpy(rng.permutation(len(chosen))), batch):
            scores = net(jobs[which], servers[which]).masked_fill(~allowed[which], -torch.inf)
            loss = nn.functional.cross_entropy(scores, chosen[which])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
