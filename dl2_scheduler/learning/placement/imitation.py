"""This module lets the learnt placement policy imitate a planner, also in states that only the policy gets into.

First the planner decides and the policy learns its choices; then, again and again, the policy itself decides, and the
planner says what it would have done there (DAgger, Ross et al., AISTATS 2011), so that the policy also learns where its
own mistakes lead.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from dl2_scheduler.cluster.hardware.machines import Ints
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.cluster.interfaces import PlacementPolicy
from dl2_scheduler.policies.learnt.placer import LearntPlacer, PlacerInputs, group_width, job_width, placer_inputs
from dl2_scheduler.policies.placement.draft import Draft, missing_tasks
from dl2_scheduler.policies.placement.greedy_fill import JobOrder, waiting

HIDDEN = 96


class PlacerNet(nn.Module):
    """The learnt placement policy's network: see `LearntPlacer`, which does the same without torch.

    Args:
        models: how many there are.
    """

    def __init__(self, models: int):
        super().__init__()
        whole = job_width(models) + group_width(models)
        self.group = nn.Linear(group_width(models), HIDDEN, bias=False)
        self.whole = nn.Linear(whole, HIDDEN)
        self.hidden = nn.Linear(HIDDEN, HIDDEN)
        self.out = nn.Linear(HIDDEN, 1, bias=False)
        self.wait = nn.Linear(whole, HIDDEN)
        self.rest = nn.Linear(HIDDEN, 1)

    def forward(self, groups: Tensor, job: Tensor, allowed: Tensor) -> Tensor:
        """Compute the scores of groups and of waiting, (tasks, groups + 1); what is not allowed has minus infinity.

        Args:
            groups: see `PlacerInputs`, (tasks, groups, group_width).
            job: see there, (tasks, job_width).
            allowed: see there, (tasks, groups + 1).
        """
        whole = torch.cat([job, groups.mean(dim=1)], dim=1)
        first = torch.relu(self.group(groups) + self.whole(whole)[:, None])
        scores = self.out(torch.relu(self.hidden(first)))[..., 0]
        waits = self.rest(torch.relu(self.wait(whole)))
        return torch.cat([scores, waits], dim=1).masked_fill(~allowed, -torch.inf)

    def policy(self) -> LearntPlacer:
        """Return the policy with the present weights."""
        return LearntPlacer({name: value.detach().numpy().copy() for name, value in self.state_dict().items()})


@dataclass
class Choices:
    """These `Choices` are what a planner decided about tasks, and what the policy reads for them."""

    inputs: list[PlacerInputs] = field(default_factory=list)
    chosen: list[int] = field(default_factory=list)

    def add(self, view: PlacementView, places: Places) -> None:
        """Take note of the places that a planner gave, task by task in the policy's order."""
        draft = Draft(view)
        order = waiting(view, JobOrder.SHORTEST)
        for number, job in enumerate(order):
            left = [list(groups) for groups in places.groups.get(job, ((), ()))]
            for role in missing_tasks(view, job):
                inputs = placer_inputs(draft, job, role, order[number + 1 :])
                if not any(left):
                    if inputs.allowed[:-1].any():
                        self.inputs.append(inputs)
                        self.chosen.append(len(draft.free))
                    break
                group = self._next(draft, job, left[role])
                self.inputs.append(inputs)
                self.chosen.append(group)
                draft.put(job, role, group)

    @staticmethod
    def _next(draft: Draft, job: int, groups: list[int]) -> int:
        """Take the group that comes first: one that has tasks of the job already, else the lowest."""
        own = {group for role in draft.groups.get(job, ([], [])) for group in role}
        group = min(groups, key=lambda each: (each not in own, each))
        groups.remove(group)
        return group


@dataclass
class Asking:
    """See `PlacementPolicy`: one policy decides, and another one says what it would have done.

    Attributes:
        decides: the first.
        teacher: the other one; often the same.
        choices: get the teacher's.
    """

    decides: PlacementPolicy
    teacher: PlacementPolicy
    choices: Choices

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`."""
        taught = self.teacher.place(view)
        self.choices.add(view, taught)
        return taught if self.decides is self.teacher else self.decides.place(view)


def fit_choices(
    net: PlacerNet, choices: Choices, epochs: int, seed: int, rate: float = 2e-3, batch: int = 256
) -> float:
    """Fit a network to choices, and return the loss of the last epoch: the mean of -log of the chosen's probability.

    Args:
        net: changed.
        choices: of a planner.
        epochs: passes over them.
        seed: of the order.
        rate: of Adam at the start; it falls to nothing along a cosine.
        batch: choices of an update.
    """
    groups, job, allowed = (
        torch.from_numpy(np.stack([getattr(each, name) for each in choices.inputs]))
        for name in ("groups", "job", "allowed")
    )
    chosen = torch.from_numpy(np.array(choices.chosen, dtype=np.int64))
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    updates = epochs * -(-len(chosen) // batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    rng, losses = np.random.default_rng(seed), [0.0]
    for _ in range(epochs):
        losses = []
        for which in _batches(rng.permutation(len(chosen)), batch):
            loss = nn.functional.cross_entropy(net(groups[which], job[which], allowed[which]), chosen[which])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            losses.append(float(loss.detach()))
    return float(np.mean(losses))


def _batches(order: Ints, size: int) -> Sequence[Tensor]:
    return [torch.from_numpy(order[start : start + size]) for start in range(0, len(order), size)]
