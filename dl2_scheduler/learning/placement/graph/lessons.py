"""This module lets planners teach the graph scheduler's agents: what they would choose, task by task."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.cluster.interfaces import AllocationPolicy, PlacementPolicy
from dl2_scheduler.learning.placement.graph.net import TaskBook
from dl2_scheduler.policies.learnt.graph.agent_inputs import TaskInputs, Watched
from dl2_scheduler.policies.learnt.graph.agents import actions, place_by_agents
from dl2_scheduler.policies.placement.pods import PodSearch
from dl2_scheduler.sim.placed.scenario import Scenario

FIRST_LESSON = 1_000_000
"""Seed of the first sequence that planners decide about."""


@dataclass(frozen=True)
class Taught:
    """See `PlacementPolicy`: a planner says what it would do, and in some intervals another policy decides.

    Where it decides alone, nobody learns from it what to do in a cluster that is crowded: it never lets it get there.

    Attributes:
        planner: whose choices the book gets.
        other: the other policy.
        part: of the intervals in which the other one decides.
        rng: draws these.
        book: gets the choices.
    """

    planner: PlacementPolicy
    other: PlacementPolicy
    part: float
    rng: np.random.Generator
    book: TaskBook

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`."""
        taught = self.planner.place(view)
        note(view, taught, self.book)
        return self.other.place(view) if self.rng.random() < self.part else taught


def note(view: PlacementView, places: Places, book: TaskBook) -> None:
    """Take note of the places that a planner gave, task by task in the agents' order.

    Args:
        view: of the cluster.
        places: of whole jobs, each in one partition.
        book: gets the choices.
    """
    partition = view.topology.partition_of[view.machines.node_of]

    def as_planned(watched: Watched, inputs: TaskInputs) -> int:
        groups, wait = watched.graphs.pods[inputs.pod].groups, len(inputs.fits) + len(inputs.forwards)
        roles = places.groups.get(inputs.job)
        if roles is None:
            action = wait
        else:
            placed = watched.draft.groups.get(inputs.job, ([], []))
            group = roles[inputs.role][len(placed[inputs.role])]
            pod = int(partition[group])
            action = int(watched.graphs.place[group]) if pod == inputs.pod else len(groups) + pod
        if actions(inputs)[action]:
            book.add(watched, inputs, action)
        return action

    place_by_agents(view, as_planned)


def first_lessons(
    scenarios: Sequence[Scenario],
    allocation: AllocationPolicy,
    planners: Sequence[PodSearch],
    sequences: int,
    disturbed: float,
    tell: Callable[[int], None] = lambda _: None,
) -> list[TaskBook]:
    """Return what planners choose in each scenario, in clusters that they do without patience now and then.

    Args:
        scenarios: in which agents are to be good.
        allocation: says how many tasks jobs get.
        planners: one for each scenario.
        sequences: of each scenario.
        disturbed: part of the intervals in which the planner decides without patience.
        tell: gets how many clusters' lessons have been taken.
    """
    books = [TaskBook() for _ in scenarios]
    for number, (scenario, planner, book) in enumerate(zip(scenarios, planners, books, strict=True), 1):
        hasty = replace(planner, patience=None)
        lead(hasty, disturbed, [scenario], [planner], [book], allocation, range(FIRST_LESSON, FIRST_LESSON + sequences))
        tell(number)
    return books


def lead(
    policy: PlacementPolicy,
    part: float,
    scenarios: Sequence[Scenario],
    planners: Sequence[PlacementPolicy],
    books: Sequence[TaskBook],
    allocation: AllocationPolicy,
    seeds: Sequence[int],
) -> None:
    """Let a policy decide in a part of the intervals, and take note of what planners would do in all.

    Args:
        policy: that decides.
        part: of the intervals.
        scenarios: clusters.
        planners: one for each scenario; they decide in the other intervals.
        books: one for each scenario: they get the choices.
        allocation: says how many tasks jobs get.
        seeds: of the sequences of jobs, and of the draws.
    """
    for scenario, planner, book in zip(scenarios, planners, books, strict=True):
        for seed in seeds:
            taught = Taught(planner, policy, part, np.random.default_rng(seed), book)
            scenario.completion_times(allocation, taught, scenario.jobs(seed))
