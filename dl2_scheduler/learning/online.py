"""Learning from what one's own decisions lead to, on simulated clusters (DL2, section 4.3)."""

import time
from dataclasses import dataclass

import numpy as np
import torch

from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.actor_critic import ActorCritic, Settings
from dl2_scheduler.learning.bootstrap import Tell
from dl2_scheduler.learning.lessons import Lessons, by_cluster
from dl2_scheduler.learning.networks import SharedPolicy
from dl2_scheduler.learning.rollout import Clusters, roll_out
from dl2_scheduler.learning.run_folder import Curves, RunFolder

_FIRST_EPISODE = 100_000  # a bootstrap of the same seed has seen those before


@dataclass(frozen=True)
class OnlineSettings:
    """Of `learn`.

    Attributes:
        lanes: episodes of an update, in turn on each cluster.
        value_only: updates in which the value network alone learns: what it says of the first policy must be right.
        checkpoint_every: updates.
        judge_every: updates after which the policy is judged without exploration.
        validation: episodes of each cluster by which it is judged.
    """

    lanes: int = 12
    value_only: int = 10
    checkpoint_every: int = 10
    judge_every: int = 20
    validation: int = 4


class Online:
    """A run of online learning; every update depends on its number, the seed and the checkpoint before, nothing else.

    Args:
        folder: begun, or with a checkpoint from which to go on.
        lessons: the episodes.
        speeds: of the simulated jobs.
        settings: see there.
        algorithm: of the actor-critic.
        start: the checkpoint of a bootstrap; None: go on from the folder's own.
    """

    def __init__(
        self,
        folder: RunFolder,
        lessons: Lessons,
        speeds: Speeds,
        settings: OnlineSettings,
        algorithm: Settings,
        start: RunFolder | None = None,
    ):
        self._folder, self._lessons, self._speeds = folder, lessons, speeds
        self._settings, self._algorithm = settings, algorithm
        torch.manual_seed(lessons.seed)
        found = (start or folder).checkpoint()
        policy = SharedPolicy(found["models"])
        policy.load_state_dict(found["policy"])
        self._learner = ActorCritic(policy, algorithm)
        if start is None:
            self._learner.load_state(found)
        self.updates: int = 0 if start is not None else found["updates"]

    def run(self, seconds: float, updates: int | None, tell: Tell) -> None:
        """Learn until the time is over, or until so many updates have been made in all.

        Args:
            seconds: from now on.
            updates: in all, those before a checkpoint too; None: as many as there is time for.
            tell: see `Tell`.
        """
        curves = Curves(self._folder, self.updates)
        began = time.monotonic()
        while (spent := time.monotonic() - began) < seconds and (updates is None or self.updates < updates):
            numbers = self.update()
            curves.add(self.updates, numbers)
            tell("online learning", int(min(spent, seconds)), int(seconds), numbers)
            if self.updates % self._settings.checkpoint_every == 0:
                self.save()
        self.save()
        curves.close()

    def update(self) -> dict[str, float]:
        """Run an episode in each lane, and learn from them."""
        settings = self._settings
        random = np.random.default_rng([self._lessons.seed, self.updates])
        first = _FIRST_EPISODE + self.updates * settings.lanes
        clusters = self._clusters(first)
        rollout = roll_out(clusters, self._learner.policy.weights(), random)
        numbers = self._learner.update(rollout, random, self.updates >= settings.value_only)
        self.updates += 1
        numbers["explored/jct"] = float(rollout.completion.mean())
        numbers["explored/reward"] = float(rollout.trained.sum(axis=1).mean() / rollout.trained.shape[1])
        if self.updates % settings.judge_every == 0:
            for number, jct in enumerate(self.judge()):
                numbers[f"judged/jct_{number}"] = jct
        return numbers

    def judge(self) -> list[float]:
        """Mean completion times in slots without exploration, by cluster, on sequences that it does not learn from."""
        judged = self._lessons.validation(self._settings.validation)
        clusters = Clusters(judged, self._speeds, self._learner.policy.models)
        found = roll_out(clusters, self._learner.policy.weights())
        return by_cluster(found.completion.tolist(), len(self._lessons.clusters))

    def save(self) -> None:
        """Write a checkpoint."""
        policy = self._learner.policy
        state = {**self._learner.state(), "models": policy.models, "updates": self.updates}
        self._folder.save(policy.weights(), state)

    def _clusters(self, first: int) -> Clusters:
        episodes = self._lessons.episodes(first, self._settings.lanes)
        return Clusters(episodes, self._speeds, self._learner.policy.models, spread=self._algorithm.spread)
