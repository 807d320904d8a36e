"""Online learning from what live jobs did (DL2, section 4.3): `learning/online.py` with a history for a simulator.

Nothing is tried that the policy would not do: no exploration. An update depends on the history, the checkpoint before
and nothing else.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise, takewhile
from typing import Any

import numpy as np
import torch

from dl2_scheduler.cluster.errors import SchedulerError
from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.interfaces import JobOutcome, SlotOutcome
from dl2_scheduler.cluster.snapshot import JobState, Snapshot
from dl2_scheduler.learning.actor import Actor, ActorSettings
from dl2_scheduler.learning.critic import Critic, CriticPolicy, CriticSettings
from dl2_scheduler.learning.experience import Experience
from dl2_scheduler.learning.growth import grown
from dl2_scheduler.learning.networks import SharedPolicy
from dl2_scheduler.learning.plain import restored, whole
from dl2_scheduler.learning.recorded import slot_of
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.learning.sequences import Slots
from dl2_scheduler.learning.teacher import PolicyTeacher
from dl2_scheduler.live.history import History
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.policies.learnt.array_files import MOST_MODELS, check_models
from dl2_scheduler.policies.learnt.features import features, of_room

log = logging.getLogger(__name__)

_KEY = "live"  # of a checkpoint
_CLUSTER = "live"  # of the experience
_COMPLETE = 1 - 1e-6  # part of its epochs after which a job that ended is taken to have trained them all
_LENGTHS = (0.8, 1.2)  # of a slot, over what it should be, between which speeds are learnt from it


class Diverged(SchedulerError):
    """Learning gave weights that are not finite; they are not written."""


@dataclass(frozen=True)
class LiveSettings:
    """These settings are those of `LiveLearner`.

    Attributes:
        most_slots: of the history, that an update learns from; more than one only where it lags behind.
        again: slots of before that an update learns from, too: what should have been done in them is asked anew, as
            what the critic said when they were new it would say no more.
        past: slots of before of which these are drawn.
        softening: see `OnlineSettings`.
        most_finished: see `Experience`; few, so that what was simulated gives way to what happened.
        actor: of the policy network.
        critic: of the critic.
    """

    most_slots: int = 64
    again: int = 31
    past: int = 256
    softening: float = 0.1
    most_finished: int = 5_000
    actor: ActorSettings = field(default_factory=lambda: ActorSettings(learning_rate=1e-3, replay=1, passes=4))
    critic: CriticSettings = field(default_factory=lambda: CriticSettings(steps=200))


class LiveLearner:
    """Goes on with a run of `dl2 bootstrap` or `dl2 learn`, in its folder.

    Args:
        folder: of the run.
        history: of the cluster.
        cluster: says which cluster it is: what was learnt of another's slots is no reason to leave out this one's.
        rule: by which tasks find their node.
        settings: see there.

    Attributes:
        updates: from live slots, in all.
        slot: number of the last slot that it has learnt from; -1: none.

    Raises:
        BadInput: there is no checkpoint.
    """

    def __init__(
        self,
        folder: RunFolder,
        history: History,
        cluster: str,
        rule: NodeRule = NodeRule.SPREAD,
        settings: LiveSettings = LiveSettings(),
    ):
        self._folder, self._history, self._cluster = folder, history, cluster
        self._rule, self._settings, self._seed = rule, settings, int(folder.settings()["seed"])
        found = folder.checkpoint()
        torch.manual_seed(self._seed)
        with restored(folder.checkpoint_file):
            live = found.get(_KEY)
            self._simulated = whole(found["updates"])
            self._restore(found)
            self.updates: int = whole(live["updates"]) if live else 0
            self.slot: int = whole(live["slot"], -1) if live else -1
        if live is None or live["cluster"] != cluster:
            self._experience.forget(_CLUSTER)
            self.slot = -1
        before = self._history.slots(after=self.slot - settings.past)
        self._past = list(takewhile(lambda slot: slot.snapshot.slot <= self.slot, before)) if self.slot >= 0 else []

    def update(self) -> dict[str, float] | None:
        """Learn from the slots that have come; the losses. None: there is none that has ended and been followed.

        Raises:
            Diverged: the weights are not finite.
        """
        slots = list(islice(self._history.slots(after=self.slot), self._settings.most_slots + 1))
        if len(slots) < 2:
            return None
        self._know({state.job.model for slot in slots for state in slot.snapshot.jobs})
        random = np.random.default_rng([self._seed, self.updates, slots[0].snapshot.slot])
        for slot, following in pairwise(slots):
            if slot.outcome is not None:
                self._record(slot, slot.outcome, following.at - slot.at)
        numbers = self._critic.learn(self._experience, random)
        if self._critic.ready:
            lessons = list(self._lessons([*slots[:-1], *self._drawn(random)]))
            numbers["actor/cross_entropy"] = self._actor.learn(Slots.joined(lessons), random)
        self.updates, self.slot = self.updates + 1, slots[-2].snapshot.slot
        oldest = self.slot - self._settings.past
        self._past = [slot for slot in [*self._past, *slots[:-1]] if slot.snapshot.slot > oldest]
        if not all(np.isfinite(array).all() for array in self._actor.weights().arrays.values()):
            raise Diverged(f"update {self.updates}, of slot {self.slot}: weights are not finite; they are not used")
        return numbers

    def save(self) -> None:
        """Write a checkpoint."""
        self._folder.save(self._actor.weights(), self._state())

    def _restore(self, found: Mapping[str, Any]) -> None:
        """Go on from a checkpoint. Raises what `plain.restored` expects."""
        check_models(found["models"], MOST_MODELS)
        self._actor = _actor(found, self._settings)
        self._critic = Critic(found["models"], self._settings.critic)
        self._experience = Experience(found["models"], self._settings.most_finished)
        if "critic" in found:
            self._critic.load_state(found["critic"])
            self._experience.load_state(found["experience"])

    def _know(self, models: Collection[str]) -> None:
        """Make room for types that are new; decisions about the others stay as they are."""
        new = sorted(set(models) - set(self._actor.models))
        if new:
            log.info(
                "types that it did not know: %s; their jobs count as jobs usually do until they train", ", ".join(new)
            )
            self._restore(grown(self._state(), new))

    def _state(self) -> dict[str, Any]:
        learners = {"critic": self._critic.state(), "experience": self._experience.state()}
        live = {"slot": self.slot, "updates": self.updates, "cluster": self._cluster}
        state = {**self._actor.state(), **learners, "models": self._actor.models, "updates": self._simulated}
        return {**state, _KEY: live}

    def _record(self, slot: RecordedSlot, outcome: SlotOutcome, seconds: float) -> None:
        """Record what jobs did, as the critic learns it.

        Args:
            slot: as it was decided.
            outcome: of it.
            seconds: that it lasted.
        """
        snapshot, models = slot.snapshot, self._actor.models
        inputs, _ = of_room(FreeResources(snapshot, self._rule), models)
        rows = features(inputs, len(models))
        whole = _LENGTHS[0] <= seconds / snapshot.slot_seconds <= _LENGTHS[1]
        kept, states, outcomes = [], [], []
        for number, (state, done) in enumerate(zip(snapshot.jobs, outcome.jobs, strict=True)):
            if done.finished is None or _trained_all(state, done):
                kept.append(number)
                states.append(state)
                outcomes.append(_as_learnt(state, done, snapshot, whole))
        seen = replace(snapshot, jobs=tuple(states))
        self._experience.record(_CLUSTER, seen, rows[kept], replace(outcome, jobs=outcomes))
        self._experience.forget(_CLUSTER, but={done.id for done in outcomes if done.finished is None})

    def _drawn(self, random: np.random.Generator) -> list[RecordedSlot]:
        """Draw slots of before that are learnt from once more."""
        count = min(len(self._past), self._settings.again)
        return [self._past[number] for number in random.choice(len(self._past), count, replace=False)] if count else []

    def _lessons(self, slots: list[RecordedSlot]) -> Iterator[Slots]:
        """Yield what the critic would have done."""
        teacher = PolicyTeacher(CriticPolicy(self._critic), self._rule)
        for slot in slots:
            yield slot_of(FreeResources(slot.snapshot, self._rule), teacher(slot.snapshot), self._actor.weights())


def _actor(found: Mapping[str, Any], settings: LiveSettings) -> Actor:
    """Return the actor of a checkpoint: of live learning as it was; of another only the weights that decide."""
    policy = SharedPolicy(found["models"])
    if "average" in found:
        prefix = "module."
        deciding = {name.removeprefix(prefix): of for name, of in found["average"].items() if name.startswith(prefix)}
        policy.load_state_dict(deciding)
    else:
        policy.load_state_dict(found["policy"])
        policy.soften(settings.softening)
    actor = Actor(policy, settings.actor)
    if _KEY in found:
        actor.load_state(found)
    return actor


def _trained_all(state: JobState, done: JobOutcome) -> bool:
    """Return whether a job that ended had trained all its epochs.

    One that was stopped or failed tells nothing of how long jobs take.
    """
    return state.epochs_done + done.epochs >= state.job.estimate * _COMPLETE


def _as_learnt(state: JobState, done: JobOutcome, snapshot: Snapshot, whole: bool) -> JobOutcome:
    """Return an outcome in numbers of slots, which live are not alike in time.

    A job that ended did so in the middle of a slot.

    Args:
        state: of the job at the slot's start.
        done: what it did.
        snapshot: of the slot.
        whole: the slot was as long as it should be, so that its epochs tell a speed.
    """
    if done.finished is not None:
        return replace(done, finished=(snapshot.slot + 0.5) * snapshot.slot_seconds)
    if not whole or not state.job.samples_known:
        return replace(done, workers=0, servers=0)
    return done
