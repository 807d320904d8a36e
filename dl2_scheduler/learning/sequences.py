"""Probabilities of the actions of whole slots under a policy that scores each job by itself, and their gradients.

Between two inferences the scores of one job change. So the network is asked once for each state that a job was in, a
visit, and the softmax of each inference is over the present visits of all jobs: a compiled loop, forth and back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dl2_scheduler.cluster.compiled import compiled, inlined
from dl2_scheduler.cluster.jobs import MOST_TASKS
from dl2_scheduler.learning.networks import SharedPolicy
from dl2_scheduler.learning.plain import numbers
from dl2_scheduler.policies.learnt.actions import ACTIONS, STOP, Ints, Tasks, allowed, grant, may_stop

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Slots:
    """Slots as they were filled, one behind the other.

    Attributes:
        rows: features of all jobs, (jobs, features).
        share: see `Scores.share`, (jobs, 2).
        least: workers and servers of a job's first grant, (jobs, 2).
        most: that it can have, (jobs, 2).
        runs: whether a job ran before.
        closed: see `fill`, (jobs, 3).
        first_job: index of each slot's first job, and the number of jobs.
        actions: of all inferences; jobs are counted from the slot's first.
        first_action: index of each slot's first action, and the number of actions.
    """

    rows: NDArray[np.float32]
    share: NDArray[np.float32]
    least: Ints
    most: Ints
    runs: NDArray[np.bool_]
    closed: Ints
    first_job: Ints
    actions: Ints
    first_action: Ints

    def state(self) -> dict[str, NDArray[Any]]:
        """Return them as a checkpoint has them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @staticmethod
    def of(state: Mapping[str, Any], features: int) -> "Slots":
        """Return those of a checkpoint, with indices that are within what they index: compiled code looks at no bounds.

        Args:
            state: as `state` gives it.
            features: of a job.

        Raises:
            KeyError, ValueError: it is not that.
        """
        i, f = np.int64, np.float32
        found = Slots(
            numbers(state["rows"], f, (features,)),
            numbers(state["share"], f, (2,)),
            numbers(state["least"], i, (2,)),
            numbers(state["most"], i, (2,)),
            numbers(state["runs"], np.bool_),
            numbers(state["closed"], i, (ACTIONS,)),
            numbers(state["first_job"], i),
            numbers(state["actions"], i),
            numbers(state["first_action"], i),
        )
        found.check()
        return found

    def check(self) -> None:
        """Refuse indices and counts that cannot be. Raises ValueError."""
        jobs = len(self.rows)
        of_jobs = (self.share, self.least, self.most, self.runs, self.closed)
        follow = _are_starts(self.first_job, jobs) and _are_starts(self.first_action, len(self.actions))
        if not all(len(each) == jobs for each in of_jobs) or len(self.first_job) != len(self.first_action):
            raise ValueError("slots of jobs that are not the same in all arrays")
        if not follow:
            raise ValueError("slots that do not follow each other")
        most = np.repeat(np.diff(self.first_job) * ACTIONS, np.diff(self.first_action))
        if not ((self.actions >= STOP) & (self.actions < most)).all():
            raise ValueError("actions of jobs that are not there")
        fewest = np.clip(self.most, [1, 0], 1)  # of each role: a job may have no servers
        if not ((self.least >= fewest) & (self.least <= self.most) & (self.most <= MOST_TASKS)).all():
            raise ValueError("jobs with minima and maxima that cannot be")

    def __len__(self) -> int:
        return len(self.first_job) - 1

    def chosen(self, numbers: Ints) -> "Slots":
        """Return some of them."""
        jobs = _ranges(self.first_job, numbers)
        actions = _ranges(self.first_action, numbers)
        return Slots(
            self.rows[jobs],
            self.share[jobs],
            self.least[jobs],
            self.most[jobs],
            self.runs[jobs],
            self.closed[jobs],
            _starts(np.diff(self.first_job)[numbers]),
            self.actions[actions],
            _starts(np.diff(self.first_action)[numbers]),
        )

    @staticmethod
    def joined(parts: "list[Slots]") -> "Slots":
        """Join all slots of several."""
        return Slots(
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.share for part in parts]),
            np.concatenate([part.least for part in parts]),
            np.concatenate([part.most for part in parts]),
            np.concatenate([part.runs for part in parts]),
            np.concatenate([part.closed for part in parts]),
            _starts(np.concatenate([np.diff(part.first_job) for part in parts])),
            np.concatenate([part.actions for part in parts]),
            _starts(np.concatenate([np.diff(part.first_action) for part in parts])),
        )


def _are_starts(first: Ints, end: int) -> bool:
    return bool(len(first) and first[0] == 0 and first[-1] == end and (np.diff(first) >= 0).all())


def _starts(lengths: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _ranges(starts: Ints, numbers: Ints) -> Ints:
    length = np.diff(starts)[numbers]
    before = np.cumsum(length) - length
    found: Ints = np.repeat(starts[numbers] - before, length) + np.arange(int(length.sum()))
    return found


@compiled
def visits(
    least: Ints, first_job: Ints, actions: Ints, first_action: Ints, job: Ints, workers: Ints, servers: Ints
) -> int:
    """Write the states that jobs were in, slot by slot: each job's first, then one for each grant; return how many.

    Args:
        least: see `Slots`, as the next three.
        first_job: see there.
        actions: see there.
        first_action: see there.
        job: written: of each visit, an index of the jobs.
        workers: written: of each visit.
        servers: written: of each visit.
    """
    count = 0
    for slot in range(len(first_job) - 1):
        base = first_job[slot]
        jobs = first_job[slot + 1] - base
        counts = np.zeros((jobs, 2), dtype=np.int64)
        for number in range(jobs):
            job[count], workers[count], servers[count] = base + number, 0, 0
            count += 1
        for inference in range(first_action[slot], first_action[slot + 1]):
            if actions[inference] != STOP:
                number = actions[inference] // ACTIONS
                grant(counts, least[base : base + jobs], number, actions[inference] % ACTIONS)
                job[count], workers[count], servers[count] = base + number, counts[number, 0], counts[number, 1]
                count += 1
    return count


@compiled
def _log_shares(
    scores: NDArray[np.float32],
    stop: float,
    at: Ints,
    tasks: Tasks,
    counts: Ints,
    closed: Ints,
    inference: int,
    logs: Floats,
) -> None:
    """Write the log probability of each action, and last of stopping; minus infinity: it was not allowed."""
    logs[:] = -np.inf
    for job in range(len(counts)):
        for action in range(ACTIONS):
            if allowed(tasks, counts, closed, inference, job, action):
                logs[job * ACTIONS + action] = scores[at[job], action]
    if may_stop(tasks, counts, closed, inference):
        logs[-1] = stop
    top = logs.max()
    logs -= top + np.log(np.exp(logs - top).sum())


class _Choices(NamedTuple):
    """`_Choices` are what was chosen in slots, and among what; see `Slots`, whose arrays these are."""

    least: Ints
    most: Ints
    runs: NDArray[np.bool_]
    closed: Ints
    first_job: Ints
    actions: Ints
    first_action: Ints


@compiled
def _walk(
    scores: NDArray[np.float32],
    stops: NDArray[np.float32],
    choices: _Choices,
    log_probability: Floats,
    by_probability: Floats,
    score_gradient: NDArray[np.float32],
    stop_gradient: NDArray[np.float32],
) -> None:
    """Go through all inferences: forth, or with `by_probability` of the inferences' length back.

    Args:
        scores: of visits, (visits, 3).
        stops: of slots.
        choices: of the slots.
        log_probability: written, by action.
        by_probability: derivative of the loss by the log probability of each action; empty: go forth.
        score_gradient: added to.
        stop_gradient: added to.
    """
    visit = 0
    for slot in range(len(choices.first_job) - 1):
        tasks, closed, actions = _of_slot(choices, slot)
        counts, logs = np.zeros((len(closed), 2), dtype=np.int64), np.empty(closed.size + 1)
        at = visit + np.arange(len(closed))
        visit += len(closed)
        for inference, action in enumerate(actions):
            number = choices.first_action[slot] + inference
            _log_shares(scores, stops[slot], at, tasks, counts, closed, inference, logs)
            chosen = len(logs) - 1 if action == STOP else action
            if len(by_probability) == 0:
                log_probability[number] = logs[chosen]
            else:
                _add_slopes(logs, chosen, by_probability[number], at, score_gradient, stop_gradient[slot : slot + 1])
            if action != STOP:
                job = action // ACTIONS
                grant(counts, tasks.least, job, action % ACTIONS)
                at[job] = visit
                visit += 1


@inlined
def _of_slot(choices: _Choices, slot: int) -> tuple[Tasks, Ints, Ints]:
    """Return what the jobs of a slot may get, what was closed to them, and what was done."""
    jobs = slice(choices.first_job[slot], choices.first_job[slot + 1])
    done = slice(choices.first_action[slot], choices.first_action[slot + 1])
    no_demands, no_kinds = np.zeros((0, 0)), choices.closed[:0]
    tasks = Tasks(no_demands, no_kinds, choices.least[jobs], choices.most[jobs], choices.runs[jobs])
    return tasks, choices.closed[jobs], choices.actions[done]


@compiled
def _add_slopes(
    logs: Floats,
    chosen: int,
    slope: float,
    at: Ints,
    score_gradient: NDArray[np.float32],
    stop_gradient: NDArray[np.float32],
) -> None:
    """Add the slopes of one inference: by its scores, of the log probability of what was chosen."""
    for index in range(len(logs)):
        if logs[index] == -np.inf:
            continue
        part = slope * ((index == chosen) - np.exp(logs[index]))
        if index == len(logs) - 1:
            stop_gradient[0] += part
        else:
            score_gradient[at[index // ACTIONS], index % ACTIONS] += part


class _Probabilities(torch.autograd.Function):
    """(scores, stops) to the log probability of each action."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, stops: Tensor, slots: Slots) -> Tensor:
        """See the class."""
        found = np.empty(len(slots.actions))
        _call(scores, stops, slots, found, np.empty(0), (scores.detach().numpy()[:0], stops.detach().numpy()[:0]))
        ctx.slots = slots
        ctx.save_for_backward(scores, stops)
        return torch.from_numpy(found)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        """See the class."""
        scores, stops = ctx.saved_tensors
        written = np.zeros(scores.shape, np.float32), np.zeros(stops.shape, np.float32)
        _call(scores, stops, ctx.slots, np.empty(0), gradients[0].contiguous().numpy(), written)
        return torch.from_numpy(written[0]), torch.from_numpy(written[1]), None


def _call(scores: Tensor, stops: Tensor, slots: Slots, found: Floats, slopes: Floats, written: Any) -> None:
    _walk(
        scores.detach().numpy(),
        stops.detach().numpy(),
        _Choices(slots.least, slots.most, slots.runs, slots.closed, slots.first_job, slots.actions, slots.first_action),
        found,
        slopes,
        *written,
    )


def probabilities(policy: SharedPolicy, slots: Slots) -> Tensor:
    """Log probability of each action, (actions,).

    Args:
        policy: by which.
        slots: that were filled.
    """
    length = len(slots.rows) + len(slots.actions)
    job, workers, servers = (np.empty(length, dtype=np.int64) for _ in range(3))
    count = visits(slots.least, slots.first_job, slots.actions, slots.first_action, job, workers, servers)
    at = [torch.from_numpy(array[:count]) for array in (job, workers, servers)]
    rows = torch.from_numpy(slots.rows)
    scores = policy(rows, torch.from_numpy(slots.share), *at)
    stops = policy.stops(rows[torch.from_numpy(slots.first_job[:-1])])
    found: Tensor = _Probabilities.apply(scores, stops, slots)  # type: ignore[no-untyped-call]
    return found
