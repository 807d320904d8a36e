"""This module lets the learnt placement policy imitate a planner: where learning from rewards begins."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from dl2_scheduler.cluster.hardware.machines import Ints
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.cluster.interfaces import PlacementPolicy
from dl2_scheduler.policies.learnt.placer import LearntPlacer, PlacerInputs, TaskReader, group_width, job_width
from dl2_scheduler.policies.placement.draft import Draft, missing_tasks
from dl2_scheduler.policies.placement.greedy_fill import JobOrder, waiting
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.placed.scenario import Scenario

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
        reader = TaskReader(draft)
        order = waiting(view, JobOrder.SHORTEST)
        for number, job in enumerate(order):
            left = [list(groups) for groups in places.groups.get(job, ((), ()))]
            for role in missing_tasks(view, job):
                inputs = reader.inputs(job, role, order[number + 1 :])
                if not any(left):
                    if inputs.allowed[:-1].any():
                        self.inputs.append(inputs)
                        self.chosen.append(len(draft.free))
                    break
                own = {group for of_role in draft.groups.get(job, ([], [])) for group in of_role}
                group = next_group(left[role], own)
                self.inputs.append(inputs)
                self.chosen.append(group)
                draft.put(job, role, group)


def next_group(groups: list[int], own: Set[int]) -> int:
    """Take the group that comes first: one that has tasks of the job already, else the lowest.

    Args:
        groups: of the job's tasks of a role that have no place yet, changed.
        own: that have tasks of the job.
    """
    group = min(groups, key=lambda each: (each not in own, each))
    groups.remove(group)
    return group


class NoteTaker(Protocol):
    """A `NoteTaker` gets to know what a planner decides."""

    def add(self, view: PlacementView, places: Places) -> None:
        """Take note of the places that a planner gave.

        Args:
            view: that it saw.
            places: that it gave.
        """


@dataclass(frozen=True)
class WatchedPlanner:
    """See `PlacementPolicy`: a planner decides, and others take notes.

    Attributes:
        planner: that decides.
        notes: of those who watch.
    """

    planner: PlacementPolicy
    notes: Sequence[NoteTaker]

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`."""
        places = self.planner.place(view)
        for each in self.notes:
            each.add(view, places)
        return places


def watch(
    scenarios: Sequence[Scenario], planner: PlacementPolicy, sequences: range, notes: Sequence[NoteTaker]
) -> None:
    """Let others watch a planner, which knows all jobs' fixed counts.

    Args:
        scenarios: in each of which it decides.
        planner: that decides.
        sequences: seeds of the jobs.
        notes: of those who watch.
    """
    for seed in sequences:
        for scenario in scenarios:
            scenario.completion_times(FixedDemand(), WatchedPlanner(planner, notes), scenario.jobs(seed))


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
