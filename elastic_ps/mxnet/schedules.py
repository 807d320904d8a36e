"""This module evaluates an optimizer's schedule at any update of the job, not only at one after the other."""

import copy
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary


@dataclass
class _Schedule:
    """A schedule's first state and a copy that has been evaluated up to `at`."""

    source: Any
    first: Any
    copy: Any
    at: int = 0


_schedules: "WeakKeyDictionary[Any, _Schedule]" = WeakKeyDictionary()


def learning_rate(optimizer: Any, num_update: int) -> float:
    """Return the rate of an optimizer's update, counted from 1. Its own schedule is not evaluated: a copy is."""
    scheduler = optimizer.lr_scheduler
    if scheduler is None:
        return float(optimizer.lr)
    schedule = _schedules.get(optimizer)
    if schedule is None or schedule.source is not scheduler:
        schedule = _schedules[optimizer] = _Schedule(scheduler, copy.deepcopy(scheduler), copy.deepcopy(scheduler))
    if num_update < schedule.at:
        schedule.copy, schedule.at = copy.deepcopy(schedule.first), 0
    reach_end(schedule.copy, num_update, since=schedule.at)
    schedule.at = num_update
    # One copy goes along with the job: from the first state MXNet's schedulers would log every change again.
    return float(schedule.copy(num_update))


def reach_end(scheduler: Any, num_update: int, since: int = 0) -> None:
    """Give a schedule its last rate where one skips the update that would have: it begins, or goes on, behind it.

    MXNet's PolyScheduler and CosineScheduler reckon a rate up to `max_update` and then repeat the one that they have,
    which is that of update 0 in a new object.

    Args:
        scheduler: any of MXNet's, or None; it is changed.
        num_update: that comes next, or was the last.
        since: the update at which it was evaluated last; 0: never.
    """
    end = getattr(scheduler, "max_update", None)
    if isinstance(end, int | float) and since < end <= num_update:
        scheduler(end)
