"""The critic: what a configuration makes of a job, learnt from what jobs did, and decisions that follow from it.

Two networks, without a model of how training works. One tells how fast a job trains in a configuration: an ensemble,
whose members disagree where nothing was tried (with random priors: Osband et al., 2018), so that it also tells where
to explore. The other tells how long a job with this state will take under the present policy. Together they tell what
an allocation is worth, one slot ahead; greedy jumps find a good one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import Allocation, JobState, Snapshot
from dl2_scheduler.learning.experience import Experience, ScalingKind, scaling
from dl2_scheduler.learning.networks import ProgressEnsemble, RemainingTime
from dl2_scheduler.learning.plain import load_adam, numbers
from dl2_scheduler.policies.learnt.features import F32, features, of_room
from dl2_scheduler.policies.rules.planner import fill_by_jumps

Floats = NDArray[np.float64]

_LEAST_SPEED = 0.02  # of a type's top speed: slower is as good as nothing
_MOST_OPTIMISM = 1.0  # logarithm: what was never tried counts as up to e times as fast as it is thought to be
_HOPE = 2.0  # a type that nobody has seen train is hoped to end in so many times less slots than jobs usually take
_BATCH = 256


@dataclass(frozen=True)
class CriticSettings:
    """These settings are those of `Critic`.

    Attributes:
        members: of the ensemble.
        learning_rate: of Adam, of both networks.
        steps: of both networks in an update, each on 256 samples.
        discount: of a slot, gamma of DL2's section 4.3.
        optimism: standard deviations of the ensemble that are added where it explores.
    """

    members: int = 5
    learning_rate: float = 3e-3
    steps: int = 500
    discount: float = 0.995
    optimism: float = 1.0


class Critic:
    """See the module.

    Args:
        models: types of jobs that it knows.
        settings: see there.

    Attributes:
        ready: it has seen jobs train and end.
    """

    def __init__(self, models: Sequence[str], settings: CriticSettings):
        self.models = tuple(models)
        self._settings = settings
        self._progress = ProgressEnsemble(len(models), settings.members)
        self._remaining = RemainingTime(len(models))
        rate = settings.learning_rate
        self._progress_optimizer = torch.optim.Adam(self._progress.parameters(), lr=rate)
        self._remaining_optimizer = torch.optim.Adam(self._remaining.parameters(), lr=rate)
        self._top = np.ones(len(models))
        self._seen = np.zeros((2, len(models)), dtype=bool)  # train without servers, and with
        self._grids: dict[tuple[int, int, bool, bool], Floats] = {}
        self.ready = False

    def state(self) -> dict[str, Any]:
        """Return all that the next update depends on."""
        parts = {name: part.state_dict() for name, part in self._parts().items()}
        without, seen = self._seen
        return {**parts, "top": self._top, "seen": seen, "seen_without_servers": without, "ready": self.ready}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from there. Raises what `plain.restored` expects."""
        self._progress.load_state_dict(state["progress"])
        self._remaining.load_state_dict(state["remaining"])
        load_adam(self._progress_optimizer, state["progress_optimizer"])
        load_adam(self._remaining_optimizer, state["remaining_optimizer"])
        self._top, seen = numbers(state["top"], np.float64), numbers(state["seen"], np.bool_)
        without = numbers(state.get("seen_without_servers", np.zeros_like(seen)), np.bool_)  # earlier releases had none
        if not len(self._top) == len(seen) == len(without) == len(self.models) or not (self._top > 0).all():
            raise ValueError("top speeds of other types")
        self._seen = np.stack([without, seen])
        self.ready = bool(state["ready"])
        self._grids.clear()

    def _parts(self) -> dict[str, Any]:
        return {
            "progress": self._progress,
            "remaining": self._remaining,
            "progress_optimizer": self._progress_optimizer,
            "remaining_optimizer": self._remaining_optimizer,
        }

    def learn(self, experience: Experience, random: np.random.Generator) -> dict[str, float]:
        """Fit both networks to what was seen; their losses, mean squares of logarithms."""
        rows, slots = experience.finished()
        found = {}
        if experience.speeds:
            found["critic/progress"] = self._learn_progress(experience, random)
        if len(rows):
            found["critic/remaining"] = self._learn_remaining(rows, slots, random)
        self.ready = len(found) == 2
        self._grids.clear()
        return found

    def _learn_progress(self, experience: Experience, random: np.random.Generator) -> float:
        keys = np.array(list(experience.speeds), dtype=np.int64)
        speeds, counts = np.array(list(experience.speeds.values())).T
        model, change, servers, workers = keys.T
        self._top = np.ones(len(self.models))
        np.maximum.at(self._top, model, speeds)
        self._seen = np.zeros((2, len(self.models)), dtype=bool)
        self._seen[(servers > 0).astype(int), model] = True
        wanted = torch.from_numpy(np.log(np.maximum(speeds / self._top[model], _LEAST_SPEED))).float()
        inputs = self._progress.inputs(model, change, servers, workers)
        likely = counts / counts.sum()  # a speed that was seen once may be an exception
        losses = []
        for _ in range(self._settings.steps):
            chosen = torch.from_numpy(random.choice(len(keys), _BATCH, p=likely))
            loss = (self._progress(inputs[chosen]) - wanted[chosen]).square().mean()
            losses.append(_step(self._progress_optimizer, loss))
        return float(np.mean(losses))

    def _learn_remaining(self, rows: F32, slots: Floats, random: np.random.Generator) -> float:
        inputs, wanted = torch.from_numpy(rows), torch.from_numpy(np.log(slots)).float()
        losses = []
        for _ in range(self._settings.steps):
            chosen = torch.from_numpy(random.integers(len(rows), size=_BATCH))
            loss = (self._remaining(inputs[chosen]) - wanted[chosen]).square().mean()
            losses.append(_step(self._remaining_optimizer, loss))
        return float(np.mean(losses))

    def values(self, snapshot: Snapshot, room: FreeResources, optimistic: bool) -> list[Floats]:
        """Return what configurations of each job are worth, in slots that it waits less, by (servers, workers).

        Args:
            snapshot: the cluster.
            room: of it.
            optimistic: to explore.
        """
        inputs, _ = of_room(room, self.models)
        with torch.no_grad():
            logs = self._remaining(torch.from_numpy(features(inputs, len(self.models)))).numpy()
        return [
            self._value(state, float(np.exp(log)), snapshot.slot_seconds, optimistic)
            for state, log in zip(snapshot.jobs, logs, strict=True)
        ]

    def _value(self, state: JobState, remaining: float, slot_seconds: float, optimistic: bool) -> Floats:
        """Return the value of one job, by (servers, workers).

        It is the discounted slots until the job ends if it is given nothing now, less those if it is.

        Args:
            state: of the job.
            remaining: slots that it will take from now on.
            slot_seconds: length of a slot.
            optimistic: see `values`.
        """
        if self._knows(state.job):
            work = state.remaining_epochs * state.job.samples_per_epoch / slot_seconds
            part = self._speeds(state, optimistic) / work  # of the work that this slot does
        else:
            part = self._hoped(state) * _HOPE / remaining
        with np.errstate(divide="ignore"):
            after = np.where(part >= 1, 1 / part, 1 + remaining * (1 - part))
        value = self._discounted(1 + remaining) - self._discounted(after)
        value[:, 0] = 0.0
        value[: int(state.job.has_servers)] = 0.0
        return value

    def _discounted(self, slots: float | Floats) -> Floats:
        """Return what waiting so long costs."""
        discount = self._settings.discount
        return np.asarray(slots if discount == 1 else (1 - discount**slots) / (1 - discount))

    def _speeds(self, state: JobState, optimistic: bool) -> Floats:
        """Return the samples a second by (servers, workers), of the slot that begins."""
        job = state.job
        most = max(job.max_servers, job.max_workers)
        grids = self._model_grids(self.models.index(job.model), most, optimistic, job.has_servers)
        return self._of_job(state, grids)

    def _knows(self, job: Job) -> bool:
        """Return whether a job's type was seen to train, with servers or without, as it does.

        If none was, none is more of a stranger than the others.
        """
        seen = self._seen[int(job.has_servers)]
        return job.model in self.models and (bool(seen[self.models.index(job.model)]) or not self._seen.any())

    def _hoped(self, state: JobState) -> Floats:
        """Return the speeds of a type that was never seen to train.

        They are the same part of its top speed as those of types that were, by (servers, workers).
        """
        job = state.job
        most, seen = max(job.max_servers, job.max_workers), self._seen[int(job.has_servers)].nonzero()[0].tolist()
        known = [self._model_grids(model, most, False, job.has_servers) / self._top[model] for model in seen]
        mean = np.mean(known, axis=0) if known else np.ones((len(ScalingKind), most + 1, most + 1))
        return self._of_job(state, mean / mean.max())

    @staticmethod
    def _of_job(state: JobState, grids: Floats) -> Floats:
        """Return a type's grid for a job, by what its counts are now."""
        job = state.job
        found = grids[scaling(state, 0, 0), : job.max_servers + 1, : job.max_workers + 1].copy()
        if state.workers:
            found[state.servers, state.workers] = grids[ScalingKind.NONE, state.servers, state.workers]
        return found

    def _model_grids(self, model: int, most: int, optimistic: bool, has_servers: bool) -> Floats:
        """Return the grids of one type, by (`ScalingKind`, servers, workers), up to `most` of each role.

        Args:
            model: number of the type.
            most: tasks of a role.
            optimistic: see `values`.
            has_servers: of jobs with servers; False: of those without.
        """
        key = model, most, optimistic, has_servers
        if key not in self._grids:
            rows = slice(1, None) if has_servers else slice(0, 1)  # where such jobs run
            shape = len(ScalingKind), most if has_servers else 1, most
            change, servers, workers = np.indices(shape).reshape(3, -1)
            with torch.no_grad():
                inputs = self._progress.inputs(np.full(len(change), model), change, servers + rows.start, workers + 1)
                logs = self._progress(inputs).numpy()
            bonus = self._settings.optimism * logs.std(axis=0) if optimistic else 0.0
            self._grids[key] = np.zeros((len(ScalingKind), most + 1, most + 1))
            found = np.exp(logs.mean(axis=0) + np.minimum(bonus, _MOST_OPTIMISM)) * self._top[model]
            self._grids[key][:, rows, 1:] = found.reshape(shape)
        return self._grids[key]


def _step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> float:
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return float(loss.detach())


@dataclass
class CriticPolicy:
    """See `AllocationPolicy`: does what the critic says is best.

    Attributes:
        critic: that was trained.
        optimistic: it explores.
    """

    critic: Critic
    optimistic: bool = False

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """See `AllocationPolicy.allocate`."""
        if not snapshot.jobs:
            return Allocation()
        return fill_by_jumps(room, self.critic.values(snapshot, room, self.optimistic))
