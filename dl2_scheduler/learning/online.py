"""Learning from what one's own decisions lead to (DL2, section 4.3): policy iteration with an actor and a critic.

The paper's own way, policy gradients, is in `dl2_scheduler/learning/paper`.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from dl2_scheduler.cluster.interfaces import SlotOutcome
from dl2_scheduler.cluster.snapshot import Snapshot
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.actor import Actor, ActorSettings
from dl2_scheduler.learning.bootstrap import Tell
from dl2_scheduler.learning.critic import Critic, CriticPolicy, CriticSettings
from dl2_scheduler.learning.enough import JUDGED
from dl2_scheduler.learning.experience import Experience
from dl2_scheduler.learning.lessons import Lessons, by_cluster
from dl2_scheduler.learning.networks import SharedPolicy
from dl2_scheduler.learning.plain import restored, whole
from dl2_scheduler.learning.rollout import Clusters, Guidance, judged_times, roll_out, tell_of_late
from dl2_scheduler.learning.run_folder import Curves, RunFolder
from dl2_scheduler.learning.teacher import PolicyTeacher
from dl2_scheduler.policies.learnt.array_files import MOST_MODELS, check_models
from dl2_scheduler.policies.learnt.features import F32

_FIRST_EPISODE = 100_000  # a bootstrap of the same seed has seen those before


@dataclass(frozen=True)
class OnlineSettings:
    """These settings are those of `Online`.

    Attributes:
        lanes: episodes of an update, in turn on each cluster.
        softening: by which the scores of the policy that it starts from are multiplied.
        exploration: probability that a slot is decided by the optimistic critic, epsilon of DL2's section 4.3.
        checkpoint_every: updates.
        judge_every: updates after which the policy is judged without exploration.
        validation: episodes of each cluster by which it is judged.
        actor: of the policy network.
        critic: of the critic.
    """

    lanes: int = 6
    softening: float = 0.1
    exploration: float = 0.4
    checkpoint_every: int = 5
    judge_every: int = 5
    validation: int = 4
    actor: ActorSettings = field(default_factory=ActorSettings)
    critic: CriticSettings = field(default_factory=CriticSettings)

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> "OnlineSettings":
        """Return the settings that `dataclasses.asdict` wrote."""
        actor = {name: value for name, value in written["actor"].items() if name != "least"}  # older runs have it
        parts = {"actor": ActorSettings(**actor), "critic": CriticSettings(**written["critic"])}
        return cls(**{**written, **parts})


class Online:
    """This is a run of online learning; every update depends on its number, the seed and the checkpoint before alone.

    Args:
        folder: begun, or with a checkpoint from which to go on.
        lessons: the episodes.
        speeds: of the simulated jobs.
        settings: see there.
        start: the run of a bootstrap; None: go on from the folder's own.
    """

    def __init__(
        self,
        folder: RunFolder,
        lessons: Lessons,
        speeds: Speeds,
        settings: OnlineSettings,
        start: RunFolder | None = None,
    ):
        self._folder, self._lessons, self._speeds, self._settings = folder, lessons, speeds, settings
        torch.manual_seed(lessons.seed)
        source = start or folder
        found = source.checkpoint()
        with restored(source.checkpoint_file):
            policy = SharedPolicy(check_models(found["models"], MOST_MODELS))
            policy.load_state_dict(found["policy"])
            if start is not None:
                policy.soften(settings.softening)
            self._actor = Actor(policy, settings.actor)
            self._critic = Critic(policy.models, settings.critic)
            self._experience = Experience(policy.models)
            self.updates = 0
            if start is None:
                self._actor.load_state(found)
                self._critic.load_state(found["critic"])
                self._experience.load_state(found["experience"])
                self.updates = whole(found["updates"])

    def run(self, seconds: float, updates: int | None, tell: Tell) -> None:
        """Learn until the time is over, or until so many updates have been made in all.

        Args:
            seconds: from now on.
            updates: in all, those before a checkpoint too; None: as many as there is time for.
            tell: see `Tell`.
        """
        tell_of_late(self._lessons.episodes(_FIRST_EPISODE, 1)[0].jobs)
        curves = Curves(self._folder, "learning", self.updates)
        began = time.monotonic()
        while (spent := time.monotonic() - began) < seconds and (updates is None or self.updates < updates):
            numbers = self.update()
            curves.add(self.updates, numbers)
            tell("online learning", int(min(spent, seconds)), int(seconds), {"jct": numbers["explored/jct"]})
            if self.updates % self._settings.checkpoint_every == 0:
                self.save()
        self.save()
        curves.close()

    def update(self) -> dict[str, float]:
        """Run an episode in each lane, and learn from them."""
        random = np.random.default_rng([self._lessons.seed, self.updates])
        first = _FIRST_EPISODE + self.updates * self._settings.lanes
        episodes = self._lessons.episodes(first, self._settings.lanes)
        teaches = self._critic.ready
        improved = PolicyTeacher(CriticPolicy(self._critic))
        explorer = PolicyTeacher(CriticPolicy(self._critic, optimistic=True))

        def guide(_: int, snapshot: Snapshot) -> Guidance:
            if not teaches:
                return Guidance()
            explores = random.random() < self._settings.exploration
            return Guidance(explorer(snapshot) if explores else None, improved(snapshot))

        def watch(lane: int, snapshot: Snapshot, rows: F32, outcome: SlotOutcome) -> None:
            self._experience.record(lane, snapshot, rows, outcome)

        clusters = Clusters(episodes, self._speeds, self._actor.models, cost=self._lessons.cost)
        rollout = roll_out(clusters, self._actor.weights(), guide, watch)
        for lane in range(len(episodes)):
            self._experience.forget(lane)
        numbers = self._critic.learn(self._experience, random)
        if teaches:
            numbers["actor/cross_entropy"] = self._actor.learn(rollout.slots, random)
        numbers["explored/jct"] = float(rollout.completion.mean())
        numbers["explored/reward"] = float(rollout.trained.sum(axis=1).mean() / rollout.trained.shape[1])
        self.updates += 1
        if self.updates % self._settings.judge_every == 0:
            for number, jct in enumerate(self.judge()):
                numbers[f"{JUDGED}{number}"] = jct
        return numbers

    def judge(self) -> list[float]:
        """Mean completion times in slots without exploration, by cluster, on sequences that it does not learn from."""
        judged = self._lessons.validation(self._settings.validation)
        clusters = Clusters(judged, self._speeds, self._actor.models, cost=self._lessons.cost)
        found = judged_times(clusters, self._actor.weights())
        return by_cluster(found.tolist(), len(self._lessons.clusters))

    def save(self) -> None:
        """Write a checkpoint."""
        learners = {"critic": self._critic.state(), "experience": self._experience.state()}
        state = {**self._actor.state(), **learners, "models": self._actor.models, "updates": self.updates}
        self._folder.save(self._actor.weights(), state)
