"""`Schedules` keeps the script's learning rate schedulers at the job's place in the data.

A scheduler counts its own calls, in this process. A worker that joins, a script that begins again after a restore, and
a step that is made again have made others than the job: each is brought to where the job is, by calls of its `step`.
Whether a script calls it in each step or after each epoch, the body of the rehearsal's batch shows.
"""

import copy
import logging
import warnings
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from elastic_ps.core.data_order import Place
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.system.process.quick_end import script_objects

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Moment:
    """A `_Moment` is what schedulers and their optimizer's groups are at some time.

    Attributes:
        counts: of calls, by scheduler.
        states: by scheduler, those with them that are part of one.
        groups: everything but the parameters, by group.
    """

    counts: dict[LRScheduler, int]
    states: dict[LRScheduler, dict[str, Any]]
    groups: list[dict[str, Any]]


class _Count(NamedTuple):
    """A `_Count` is what a scheduler says of its calls.

    Attributes:
        place: that it is at, which each call moves by one, or to where the call says (`step(epoch)`).
        counted: calls; None: it does not count them. One that has a `step` of its own may say 0 for ever.
    """

    place: float
    counted: int | None

    @classmethod
    def of(cls, scheduler: LRScheduler) -> "_Count":
        """Return that of now."""
        return cls(getattr(scheduler, "last_epoch", _calls(scheduler)), getattr(scheduler, "_step_count", None))

    def until(self, now: "_Count") -> int | None:
        """Return how many calls there have been; None: they have said the place.

        One that has said the next place is taken for one that has said none.
        """
        moved = now.place - self.place
        counted = moved if now.counted is None else now.counted - (self.counted or 0) or bool(moved)
        return int(moved) if moved == counted else None


class Schedules:
    """`Schedules` are those of one optimizer.

    Args:
        optimizers: of which a scheduler may have been made: the script's own, and what wraps it.
    """

    def __init__(self, optimizers: Collection[torch.optim.Optimizer]):
        self._optimizers = optimizers
        self._at_loop: dict[LRScheduler, _Count] = {}  # before the loop over epochs, until the rehearsal
        self._ahead: dict[LRScheduler, int | None] = {}  # calls since then; None: they have said its place
        self._before: _Moment | None = None  # the body of the rehearsal's batch, which is under way
        self._rehearsed: _Moment | None = None  # at its first call of the optimizer
        self._start: _Moment | None = None  # what the job's first step begins with, until this worker's first batch
        self._each_step: dict[LRScheduler, int] = {}  # calls in a step, of those that are called there
        self._last: tuple[int, _Moment] | None = None  # the last step and what it began with
        self._ended: dict[LRScheduler, int] = {}  # calls at the end of the last batch that was not left
        self._begun: int | None = None  # the job's step whose batch is under way, if that has called the optimizer
        self._others: WeakKeyDictionary[LRScheduler, _Count] = WeakKeyDictionary()  # before the batch under way
        self._seen = -1  # the last step of the job whose batch this worker has had, whether the optimizer made it

    def begin_loop(self) -> None:
        """Take note of the schedulers before the loop over epochs: its body may call them ahead of its first batch.

        Raises:
            ConfigurationError: one follows a metric that only this process has seen.
        """
        self._at_loop = {scheduler: _Count.of(scheduler) for scheduler in _schedulers_of(self._optimizers)}

    def begin_rehearsal(self) -> None:
        """Take note of the schedulers before the body of the rehearsal's batch; raise what `begin_loop` does."""
        self._before = self._moment(_schedulers_of(self._optimizers))
        known = self._before.counts.keys() & self._at_loop.keys()
        self._ahead = {scheduler: self._at_loop[scheduler].until(_Count.of(scheduler)) for scheduler in known}
        self._at_loop = {}

    def rehearse(self) -> None:
        """Take note of the schedulers at the rehearsal's first `optimizer.step`; raise what `begin_rehearsal` does."""
        if self._rehearsed is None:
            self._rehearsed = self._moment(_schedulers_of(self._optimizers))

    def end_batch(self, place: Place | None = None, steps_per_epoch: int = 0, is_left: bool = False) -> None:
        """Take note that a batch's body is over, and of what it has called, if it is the rehearsal's.

        Args:
            place: of the step; None: it is the rehearsal's, and later calls are an epoch's.
            steps_per_epoch: of the data.
            is_left: the batch comes once more, as the script has left it: what it has called is taken back.
        """
        self._begun = None
        if is_left:
            self._take_back()
        self._ended = {scheduler: _calls(scheduler) for scheduler in self._each_step}
        if place is not None:
            self._seen = place.epoch * steps_per_epoch + place.step
        if place is not None and not is_left:
            self._tell_of_calls()
        if place is None and self._before is not None:
            self._end_rehearsal(self._before, self._rehearsed)
            self._rehearsed = None

    def _end_rehearsal(self, before: _Moment, rehearsed: _Moment | None) -> None:
        """Learn what a batch calls, and take back what the rehearsal's has changed, in the groups by hand, too."""
        self._start = before
        if rehearsed is not None:
            begun = rehearsed.counts | before.counts
            calls = {scheduler: _calls(scheduler) - begun[scheduler] for scheduler in rehearsed.counts}
            self._each_step = {scheduler: count for scheduler, count in calls.items() if count > 0}
            if rehearsed.counts.keys() - before.counts.keys():  # one is made in the body, of this batch alone
                self._start = rehearsed
        self._return_to(self._start)

    def begin_batch(self, place: Place, steps_per_epoch: int) -> None:
        """Bring the schedulers to where the job is, if it is this worker's first batch; called before its body.

        Args:
            place: of the step under way.
            steps_per_epoch: of the data.
        """
        start, self._start = self._start, None
        self._before = None  # what ends without a place from here on is a batch that the script has let go late
        if start is not None:
            self._begin_at(start, place, steps_per_epoch)
        for scheduler in list(self._others):
            self._others[scheduler] = _Count.of(scheduler)

    def _begin_at(self, start: _Moment, place: Place, steps_per_epoch: int) -> None:
        """Bring the schedulers from where they were before the rehearsal to where the job is."""
        number, each_step = place.epoch * steps_per_epoch + place.step, self._each_step
        ahead, self._ahead = {found: calls for found, calls in self._ahead.items() if found not in each_step}, {}
        counting = [found for found in start.counts if ahead.get(found, 0) is not None]  # others are told their place
        if any(_calls(found) != start.counts[found] for found in counting):  # behind a first loop
            self._return_to(start)
        lacking = {}
        for found in counting:
            made = each_step[found] * number if found in each_step else place.epoch
            lacking[found] = _lacking(found, made, own=int(ahead.get(found) == 1))  # several come from a snapshot
        _call(lacking)
        if place.epoch and 1 in ahead.values():
            log.info(
                "a scheduler was called before the epoch's batches: that counts as a call in each epoch, the first "
                "too. Where the script leaves epoch 0 out, call it behind the loop"
            )
        counted = (found for found in start.counts if found not in each_step and getattr(found, "_step_count", True))
        self._others.update((found, _Count.of(found)) for found in counted)
        if each_step:
            self._last = number - 1, self._moment(each_step)
            self._ended = {scheduler: _calls(scheduler) for scheduler in each_step}

    def _tell_of_calls(self) -> None:
        """Say, once, that a batch has called a scheduler which the rehearsal's has not."""
        called = (found for found, before in list(self._others.items()) if before.until(_Count.of(found)))
        if (scheduler := next(called, None)) is not None:
            self._others.clear()
            log.warning(
                "%s.step() was called in a batch, and not in the rehearsal's, in which GradScaler may have skipped a "
                "step: a worker that joins, or begins again after a restore, calls it once for each epoch. Call it in "
                "every batch, or behind the loop",
                type(scheduler).__name__,
            )

    def begin_step(self, place: Place, steps_per_epoch: int) -> None:
        """Bring the schedulers to where the job is in a step that is made again, or behind some that this worker had
        no samples in; called in `optimizer.step`.

        Args:
            place: of the step under way.
            steps_per_epoch: of the data.
        """
        number = place.epoch * steps_per_epoch + place.step
        if number == self._begun:  # the batch calls the optimizer once more: schedulers are where the script has them
            return
        self._begun = number
        if self._last is not None and self._each_step:
            last, moment = self._last
            if number == last:
                self._return_to(moment)
            else:  # this worker had no samples in the steps since
                missed = number - max(last, self._seen) - 1
                _call({scheduler: calls * missed for scheduler, calls in self._each_step.items()})
        if self._each_step:
            self._last = number, self._moment(self._each_step)

    def _take_back(self) -> None:
        """Make the schedulers what they were before the batch that is over."""
        if self._last is not None and any(_calls(found) > count for found, count in self._ended.items()):
            moment = self._last[1]
            self._return_to(moment)
            _call({found: count - moment.counts[found] for found, count in self._ended.items()})

    def _moment(self, schedulers: Iterable[LRScheduler]) -> _Moment:
        found = list(schedulers)
        groups = next(iter(self._optimizers)).param_groups
        return _Moment(
            {scheduler: _calls(scheduler) for scheduler in found},
            {each: _kept(each.state_dict()) for scheduler in found for each in (scheduler, *_parts_of(scheduler))},
            [{name: _kept(value) for name, value in group.items() if name != "params"} for group in groups],
        )

    def _return_to(self, moment: _Moment) -> None:
        for scheduler, state in moment.states.items():
            scheduler.load_state_dict(_kept(state))
        for group, values in zip(next(iter(self._optimizers)).param_groups, moment.groups, strict=False):
            for name, value in values.items():
                if isinstance(group.get(name), torch.Tensor):  # which optimizers read where it lies
                    group[name].copy_(torch.as_tensor(value))
                else:
                    group[name] = _kept(value)


def _kept(value: Any) -> Any:
    """Return a value of a group or a scheduler as it is now: tensors and what consists of others are copied.

    Whatever else a scheduler refers to is not its own: another scheduler with its optimizer, a lock, a data set.
    """
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        found = copy.copy(value)  # of the same class
        for name, item in value.items():
            found[name] = _kept(item)
        return found
    if type(value) in (list, tuple):
        return type(value)(map(_kept, value))
    return copy.copy(value) if isinstance(value, set | deque | np.ndarray) else value


def _calls(scheduler: LRScheduler) -> int:
    """Return how often a scheduler has been called; a chain of them does not count, its parts do."""
    return int(scheduler.last_epoch) if hasattr(scheduler, "last_epoch") else _calls(_combined(scheduler)[0])


def _combined(scheduler: LRScheduler) -> Sequence[LRScheduler]:
    """Return the schedulers that a chain or a sequence calls, of which PyTorch makes it."""
    found: Sequence[LRScheduler] = getattr(scheduler, "_schedulers", ())
    return found


def _had(scheduler: LRScheduler) -> int:
    """Return how often a scheduler has been called itself, in this process or in one whose state has been loaded.

    Those calls do not count that `last_epoch=` says. One that has a `step` of its own may not count: then nobody can
    tell what a script has restored.
    """
    if hasattr(scheduler, "_step_count"):
        return max(int(scheduler._step_count) - 1, 0)  # it counts from 1
    had = max(map(_had, _combined(scheduler)), default=0)
    return _calls(scheduler) if had and hasattr(scheduler, "last_epoch") else had  # of a sequence each has had a few


def _lacking(scheduler: LRScheduler, made: int, own: int) -> int:
    """Return how many calls a scheduler lacks: it has had some already where the script has loaded it from a file.

    Args:
        scheduler: as it is before the first batch.
        made: calls of it in the job, in the epochs and steps before.
        own: calls that the script has made for the epoch that it is in.
    """
    had = max(_had(scheduler) - own, 0)
    if had:
        log.warning(
            "%s had been called %d times before this worker's first batch, as the script has restored it, and %d times "
            "in the job: %s. Leave it to the job, which calls a new one as often; one that goes on from an earlier run "
            "is made with last_epoch=, as a worker that joins or begins again would not go on from what is loaded",
            *(type(scheduler).__name__, had, made),
            "it is left as it is" if had >= made else "the rest is made up for",
        )
    return max(made - had, 0)


def _call(counts: dict[LRScheduler, int]) -> None:
    """Call schedulers so many times each, in turn as a script does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of their order with optimizer.step
        for number in range(max(counts.values(), default=0)):
            for scheduler, count in counts.items():
                if number < count:
                    scheduler.step()


def _schedulers_of(optimizers: Collection[torch.optim.Optimizer]) -> list[LRScheduler]:
    """Return those that a script calls: none that is part of another.

    Raises:
        ConfigurationError: one follows a metric.
    """
    every = [found for found in script_objects() if issubclass(type(found), LRScheduler)]  # `__class__` may warn
    groups = next(iter(optimizers)).param_groups
    of = [(found, getattr(found, "optimizer", None)) for found in every]
    # One may be of what wraps the optimizer once more, and shows its groups as its own, as accelerate's does.
    own = [found for found, each in of if each in optimizers or getattr(each, "param_groups", None) is groups]
    if any(isinstance(scheduler, ReduceLROnPlateau) for scheduler in own):
        raise ConfigurationError(
            "ReduceLROnPlateau is refused: it follows a metric that workers which join have not seen. Take a schedule "
            "of epochs or steps"
        )
    parts = {id(part) for scheduler in own for part in _parts_of(scheduler)}
    return [scheduler for scheduler in own if id(scheduler) not in parts]


def _parts_of(scheduler: LRScheduler) -> Iterator[LRScheduler]:
    """Yield the schedulers that one has, alone or in a list, as a chain does or a warm-up with what comes after it."""
    for value in vars(scheduler).values():
        for each in value if isinstance(value, list | tuple) else (value,):
            if issubclass(type(each), LRScheduler):
                yield each
                yield from _parts_of(each)
