"""Learning between slots from what one's own decisions lead to in simulated worlds that agree with a live history.

The algorithm is that of `learning/online.py`; but the critic need not learn speeds, as the world model knows of them.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from dl2_scheduler.cluster.errors import SchedulerError
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import SlotOutcome
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import JobState, Snapshot
from dl2_scheduler.cluster.speeds import Grid
from dl2_scheduler.learning.actor import Actor, ActorSettings
from dl2_scheduler.learning.critic import Critic, CriticPolicy, CriticSettings
from dl2_scheduler.learning.experience import Experience
from dl2_scheduler.learning.growth import grown
from dl2_scheduler.learning.networks import SharedPolicy
from dl2_scheduler.learning.plain import restored, whole, write_plain
from dl2_scheduler.learning.rollout import Clusters, Episode, Guidance, roll_out
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.learning.teacher import PolicyTeacher
from dl2_scheduler.policies.learnt.array_files import MOST_MODELS, check_models
from dl2_scheduler.policies.learnt.features import F32
from dl2_scheduler.policies.learnt.weights import Weights
from dl2_scheduler.policies.rules.estimates import TrueSpeeds
from dl2_scheduler.policies.rules.planner import Planner
from dl2_scheduler.world_model.future import PRESENT
from dl2_scheduler.world_model.worlds import DreamScene, Worlds, paying_speeds

log = logging.getLogger(__name__)

_KEY = "dream"  # of a checkpoint
_MOST_SLOTS = 150  # of a dream
_MOST_TYPES = 256  # that it comes to know: all that is learnt from has a number for each
_MOST_SECONDS = 60.0  # of computing, for the dreams of an update: thousands of nodes would take many minutes


class Diverged(SchedulerError):
    """Learning gave weights that are not finite; they are not written."""


@dataclass(frozen=True)
class DreamSettings:
    """These settings are those of `Dreamer`.

    Attributes:
        lanes: dreams of an update, each in its world; half of them are futures of the present, half are days.
        taught: part of the slots in which the critic plans, which takes far longer than to play them. Until it knows
            how long jobs take, the planner does in its place.
        exploration: part of these that are decided by that plan.
        softening: see `OnlineSettings`.
        most_finished: see `Experience`.
        actor: of the policy network.
        critic: of the critic.
    """

    lanes: int = 4
    taught: float = 0.3
    exploration: float = 0.5
    softening: float = 0.1
    most_finished: int = 30_000
    actor: ActorSettings = field(
        default_factory=lambda: ActorSettings(replay=8, passes=4, batch=32, average=0.998, young=20)
    )
    critic: CriticSettings = field(default_factory=CriticSettings)


class BelievingCritic(Critic):
    """A `BelievingCritic` takes speeds from a world model, and learns only how long jobs will take.

    Attributes:
        worlds: that it believes in. It plans with what it hopes for, so that what was never tried is found out.
    """

    worlds: Worlds

    def learn(self, experience: Experience, random: np.random.Generator) -> dict[str, float]:
        """Fit the remaining times to what was seen."""
        rows, slots = experience.finished()
        self.ready = bool(len(rows))
        return {"critic/remaining": self._learn_remaining(rows, slots, random)} if self.ready else {}

    def _knows(self, job: Job) -> bool:
        return True

    def _speeds(self, state: JobState, optimistic: bool) -> Grid:
        worlds, job = self.worlds, state.job
        return paying_speeds(state, worlds.hoped.grid_of(job), worlds.cost, worlds.present.slot_seconds)


class Dreamer:
    """Goes on with a run of `dl2 bootstrap`, `dl2 learn` or of its own, in its folder.

    Args:
        folder: of the run.
        rule: by which tasks find their node.
        settings: see there.

    Attributes:
        updates: that it has made, in all.
        jobs: of live clusters, the most that were remembered as it learnt.

    Raises:
        BadInput: there is no checkpoint.
    """

    def __init__(self, folder: RunFolder, rule: NodeRule = NodeRule.SPREAD, settings: DreamSettings = DreamSettings()):
        self._folder, self._rule, self._settings = folder, rule, settings
        self._seed = int(folder.settings()["seed"])
        found = folder.checkpoint()
        torch.manual_seed(self._seed)
        with restored(folder.checkpoint_file):
            self._simulated = whole(found["updates"])
            self._restore(found)
            own = found.get(_KEY, {"updates": 0})
            self.updates: int = whole(own["updates"])
            self.jobs: int = whole(own["jobs"]) if "jobs" in own else 0  # releases of before did not count them

    @property
    def weights(self) -> Weights:
        """The weights that it would decide with."""
        return self._actor.weights()

    def update(self, worlds: Worlds) -> dict[str, float]:
        """Play a scene in each lane, whose world is the next one in turn, and learn from them; the losses.

        Raises:
            Diverged: the weights are not finite.
        """
        scenes = [worlds.future() if lane % 2 else worlds.day() for lane in range(self._settings.lanes)]
        scenes = [scene for scene in scenes if scene.jobs]
        self._know({job.model for scene in scenes for job in scene.jobs})
        self._critic.worlds = worlds
        random = np.random.default_rng([self._seed, self.updates])
        plans = CriticPolicy(self._critic) if self._critic.ready else Planner(TrueSpeeds(worlds.hoped))
        improved = PolicyTeacher(plans, self._rule)

        taught: list[bool] = []

        def guide(_: int, snapshot: Snapshot) -> Guidance:
            taught.append(bool(random.random() < self._settings.taught))
            if not taught[-1]:
                return Guidance()
            lesson = improved(snapshot)
            return Guidance(lesson if random.random() < self._settings.exploration else None, lesson)

        def watch(lane: int, snapshot: Snapshot, rows: F32, outcome: SlotOutcome) -> None:
            self._experience.record(lane, snapshot, rows, outcome)

        clusters = played(scenes, worlds, self._actor.models, self._rule, self.updates * self._settings.lanes)
        rollout = roll_out(clusters, self._actor.weights(), guide, watch, _MOST_SLOTS, _MOST_SECONDS)
        for lane in range(len(scenes)):
            self._experience.forget(lane)
        numbers = self._critic.learn(self._experience, random)
        if any(taught):
            numbers["actor/cross_entropy"] = self._actor.learn(rollout.slots.chosen(np.flatnonzero(taught)), random)
        numbers["dreamt/jct"] = float(rollout.completion.mean())
        self.updates += 1
        if not all(np.isfinite(array).all() for array in self.weights.arrays.values()):
            raise Diverged(f"update {self.updates}: weights are not finite; they are not used")
        return numbers

    def adopt(self, weights: Weights) -> None:
        """Go on from another policy of the same size that knows the same types."""
        self._actor.adopt(weights)

    def save(self) -> None:
        """Write a checkpoint; the policy that decides stays."""
        write_plain(self._state(), self._folder.checkpoint_file)

    def _restore(self, found: Mapping[str, Any]) -> None:
        """Go on from a checkpoint. Raises what `plain.restored` expects."""
        models = check_models(found["models"], MOST_MODELS)
        state = found if _KEY in found else {}  # what was learnt elsewhere, of other jobs, says little of these
        self._critic = BelievingCritic(models, self._settings.critic)
        self._experience = Experience(models, self._settings.most_finished)
        if state:
            self._critic.load_state(state["critic"])
            self._experience.load_state(state["experience"])
        self._actor = _actor(found, self._settings)

    def _know(self, models: Collection[str]) -> None:
        """Make room for types that are new; decisions about the others stay as they are.

        Where an image names a type, and each build of it another, there is no end of them: those for which there is no
        room stay unknown.
        """
        known = self._actor.models
        new = sorted(set(models) - set(known))[: max(_MOST_TYPES - len(known), 0)]
        if new:
            log.info("types that it did not know: %s; their jobs count as jobs usually do until then", ", ".join(new))
            self._restore(grown(self._state(), new))

    def _state(self) -> dict[str, Any]:
        learners = {"critic": self._critic.state(), "experience": self._experience.state()}
        state = {**self._actor.state(), **learners, "models": self._actor.models, "updates": self._simulated}
        return {**state, _KEY: {"updates": self.updates, "jobs": self.jobs}}


def _actor(found: Mapping[str, Any], settings: DreamSettings) -> Actor:
    """Return the actor of a checkpoint: of dreams as it was; of another only the weights that decide."""
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


def played(
    scenes: Sequence[DreamScene], worlds: Worlds, models: Sequence[str], rule: NodeRule, first: int = 0
) -> Clusters:
    """Return clusters in which scenes begin.

    Args:
        scenes: one for each lane.
        worlds: the first lanes are in these, one each, then the next ones again.
        models: types that the policy knows.
        rule: by which tasks find their node.
        first: number of the first lane's world, which goes round.
    """
    present = worlds.present
    speeds = [worlds.speeds[(first + lane) % len(worlds.speeds)] for lane in range(len(scenes))]
    episodes = [Episode(scene.jobs, present.nodes) for scene in scenes]
    clusters = Clusters(episodes, speeds, models, rule, worlds.cost, present.slot_seconds)
    clusters.lanes.slot = PRESENT
    for lane, scene in enumerate(scenes):
        clusters.lanes.begin(lane, scene.begun)
    return clusters
