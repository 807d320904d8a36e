"""This module says what agents' choices are worth: by the progress of jobs in the interval after them, or by all costs.

A job's progress is the part of its training that it does. Only the time that jobs spend in the system sums up to what
is to be small; the others are what papers take, and what `figures.placement.graph_learning` compares.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np

from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.policies.placement.draft import Draft
from dl2_scheduler.sim.placed.scenario import Scenario


class RewardKind(StrEnum):
    """A `RewardKind` says what a choice is rewarded for.

    UNFINISHED: minus the time that all jobs spend in the system from its interval on, later intervals discounted.
    ALL: the progress of all jobs, from its interval on, later intervals discounted (Harmony's).
    OWN: the progress of the job that it places, in its interval (the graph scheduler's paper).
    TOUCHED: by how much the job's places change the progress of all jobs in its interval.
    """

    UNFINISHED = "unfinished jobs"
    ALL = "all jobs' progress"
    OWN = "own job's progress"
    TOUCHED = "change of all touched"


def progress_after(scenario: Scenario, view: PlacementView, places: Places) -> Floats:
    """Return each job's progress in the interval, at the speeds that it begins with, (jobs,).

    Args:
        scenario: whose speeds they are.
        view: of the cluster at the interval's beginning.
        places: that jobs get.
    """
    draft = Draft(view)
    for job, roles in places.groups.items():
        draft.put_all(job, roles)
    return _progress(scenario, draft)


def progress_added(scenario: Scenario, view: PlacementView, places: Places) -> Mapping[int, float]:
    """Return by how much each job's places change the sum of all jobs' progress, by the job's index.

    Args:
        scenario: whose speeds they are.
        view: of the cluster at the interval's beginning.
        places: that jobs get, in the order in which they got them.
    """
    draft, found = Draft(view), {}
    before = float(_progress(scenario, draft).sum())
    for job, roles in places.groups.items():
        draft.put_all(job, roles)
        after = float(_progress(scenario, draft).sum())
        found[job], before = after - before, after
    return found


def _progress(scenario: Scenario, draft: Draft) -> Floats:
    done = scenario.world.rates(draft.arrays()) * scenario.workload.interval_seconds
    found: Floats = np.minimum(done, draft.view.work_left) / draft.view.whole_work
    return found


def saved(episodes: Sequence[Floats], intervals: Sequence[Sequence[int]]) -> Floats:
    """Return how much less each choice's episode cost from then on than others of the same jobs, in deviations.

    Args:
        episodes: costs to go of each, (intervals,).
        intervals: in which the choices of each were made.
    """
    longest = max(len(each) for each in episodes)
    padded = np.stack([np.pad(each, (0, longest - len(each))) for each in episodes])
    less = padded.mean(axis=0) - padded
    deviation = np.sqrt((less**2).mean()) + 1e-8
    found: Floats = np.concatenate([less[row, when] / deviation for row, when in enumerate(intervals)])
    return found


def over_own_mean(gained: Floats, jobs: Sequence[int | str]) -> Floats:
    """Return by how much each choice was rewarded more than others about the same job, in deviations, (choices,).

    Args:
        gained: rewards, (choices,).
        jobs: whose each choice is.
    """
    _, which = np.unique(jobs, return_inverse=True)
    more = gained - (np.bincount(which, gained) / np.bincount(which))[which]
    found: Floats = more / (np.sqrt((more**2).mean()) + 1e-8)
    return found
