"""Online learning as the paper has it: one update a slot, in one cluster or in several (DL2, sections 4.3 and 6.5)."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.bootstrap import Tell
from dl2_scheduler.learning.lessons import Lessons, by_cluster
from dl2_scheduler.learning.paper.agent import Agent
from dl2_scheduler.learning.paper.experience import Floats, PaperExperience, Replay
from dl2_scheduler.learning.paper.judging import MOST_SLOTS, cluster_of, completion_time
from dl2_scheduler.learning.paper.networks import PaperValue, described, policy_of
from dl2_scheduler.learning.paper.policy_gradient import Networks, PaperLearner
from dl2_scheduler.learning.paper.settings import PaperSettings
from dl2_scheduler.learning.plain import restored, whole
from dl2_scheduler.learning.rollout import Episode
from dl2_scheduler.learning.run_folder import Curves, RunFolder
from dl2_scheduler.policies.learnt.dl2 import learnt, load
from dl2_scheduler.policies.learnt.paper.batched import row_width
from dl2_scheduler.policies.learnt.paper.policy import PaperDl2
from dl2_scheduler.sim.simulator import SimulatedCluster

_FIRST_EPISODE = 100_000  # a bootstrap of the same seed has seen those before
_JUDGE = 2  # in checkpoints since late jobs count nothing: before, a policy that starves others could not be beaten


class PaperOnline:
    """This is a run of online learning; every update depends on its number, the seed and the checkpoint before alone.

    The policy in its folder is the best that was judged, by the mean over the clusters, since later ones may be worse
    by far; the checkpoint is of the last update. Where none was judged the policy is the last one.

    Args:
        folder: begun, or with a checkpoint from which to go on.
        lessons: the episodes.
        speeds: of the simulated jobs.
        settings: see there.
        start: the checkpoint of a bootstrap; None: go on from the folder's own.
        judged_on: speeds by which it is judged; None: the same. Offline learning (section 6.2) learns on an analytical
            model of the speeds, and is judged on the true ones.
    """

    def __init__(
        self,
        folder: RunFolder,
        lessons: Lessons,
        speeds: Speeds,
        settings: PaperSettings,
        start: RunFolder | None = None,
        judged_on: Speeds | None = None,
    ):
        self._folder, self._lessons, self._speeds, self._settings = folder, lessons, speeds, settings
        self._judged_on = judged_on or speeds
        source = start or folder
        found = source.checkpoint()
        torch.manual_seed(lessons.seed)
        with restored(source.checkpoint_file):
            policy = policy_of(found)
            networks = Networks(policy, PaperValue(len(policy.models), policy.places))
            if "value" in found:  # an imitation has none
                networks.value.load_state_dict(found["value"])
            self.learner = PaperLearner(networks, settings)
            self.updates: int = 0
            self.best: list[float] | None = None
            self._sites = [Site(number, networks, settings) for number in range(settings.agents)]
            if start is None:
                self.learner.load_state(found)
                self.updates = whole(found["updates"])
                self.best = self._best(found)
                for site, state in zip(self._sites, found["sites"], strict=True):
                    site.load_state(state)
                    self._go_on(site, state["cluster"])

    def _best(self, found: Mapping[str, Any]) -> list[float] | None:
        """Return how good the policy in the folder is; one that an earlier judge chose is judged again."""
        if found["best"] is None:
            return None
        if found.get("judge") != _JUDGE:
            return self._times(learnt(load(self._folder.path)), self._lessons.validation(self._settings.validation))
        return [float(jct) for jct in found["best"]]

    def run(self, seconds: float, updates: int | None, tell: Tell) -> None:
        """Learn until the time is over, or until so many updates have been made in all.

        Args:
            seconds: from now on.
            updates: in all, those before a checkpoint too; None: as many as there is time for.
            tell: see `Tell`.
        """
        curves = Curves(self._folder, "learning", self.updates)
        began = time.monotonic()
        while (spent := time.monotonic() - began) < seconds and (updates is None or self.updates < updates):
            numbers = self.update()
            if self.updates % self._settings.judge_every == 0:
                numbers |= {f"judged/jct_{number}": jct for number, jct in enumerate(self.judge())}
                curves.add(self.updates, numbers)
                tell("online learning", int(min(spent, seconds)), int(seconds), numbers)
            if self.updates % self._settings.checkpoint_every == 0:
                self.save()
        self.save()
        curves.close()

    def update(self) -> dict[str, float]:
        """Play one slot of the cluster whose turn it is, and make one update by it."""
        settings = self._settings
        site = self._sites[self.updates % settings.agents]
        random = np.random.default_rng([self._lessons.seed, self.updates])
        weights = site.networks.policy.weights()
        agent = site.agent
        begun = None if agent is None else agent.begin(weights)
        if agent is None or begun is None or begun[0].slot >= MOST_SLOTS:
            site.begun = self.updates
            agent = site.begin(cluster_of(self._episode(site), self._lessons, self._speeds))
            site.episodes += 1
        samples, reward = agent.step(weights, random, settings.epsilon, settings.job_reward, settings.guided)
        self.learner.reward(reward)
        numbers = {"explored/reward": reward}
        batch = site.batch(samples, random)
        if batch is not None:
            numbers |= self.learner.update(*batch, site.networks)
        if settings.agents > 1:
            site.networks.load(self.learner.networks)
        self.updates += 1
        return numbers

    def judge(self) -> list[float]:
        """Mean completion times in slots without exploration, by cluster, on sequences that it does not learn from.

        The best policy so far is written to the folder.
        """
        weights = self.learner.networks.policy.weights()
        judged = self._times(PaperDl2(weights), self._lessons.validation(self._settings.validation))
        if self.best is None or sum(judged) < sum(self.best):
            self.best = judged
            self._folder.save_policy(weights)
        return judged

    def tested(self) -> list[float]:
        """Return the mean completion times of the policy in the folder, on sequences by which none was selected."""
        return self._times(learnt(load(self._folder.path)), self._lessons.test(self._settings.validation))

    def _times(self, policy: AllocationPolicy, episodes: Sequence[Episode]) -> list[float]:
        times = [completion_time(cluster_of(episode, self._lessons, self._judged_on), policy) for episode in episodes]
        return by_cluster(times, len(self._lessons.clusters))

    def save(self) -> None:
        """Write a checkpoint, and the policy where none was judged."""
        policy = self.learner.networks.policy
        sites = [site.state() for site in self._sites]
        own = {"updates": self.updates, "sites": sites, "best": self.best, "judge": _JUDGE}
        self._folder.save_checkpoint({**described(policy), **self.learner.state(), **own})
        if self.best is None:
            self._folder.save_policy(policy.weights())

    def _episode(self, site: "Site") -> Episode:
        """Return the next episode of a site, which begins at its `begun`."""
        lessons = self._lessons
        for update, models in self._settings.late_types:
            if update <= site.begun:
                lessons = replace(lessons, models=models)
        number = _FIRST_EPISODE + site.episodes * self._settings.agents + site.number
        return lessons.episodes(number, 1)[0]

    def _go_on(self, site: "Site", state: Mapping[str, Any] | None) -> None:
        """Go on in the episode that a checkpoint was written in: its jobs are drawn again, their progress is read."""
        if state is None:
            return
        site.episodes -= 1
        cluster = cluster_of(self._episode(site), self._lessons, self._speeds)
        site.episodes += 1
        cluster.lanes.load_state(state)
        site.begin(cluster)


class Site:
    """One of the clusters that learn a policy together: it has episodes, a buffer, and a copy of the networks.

    The copy is as old as the site's last turn, so that gradients are of weights that others have changed since: A3C's
    asynchrony (Mnih et al., 2016), but in an order that a seed repeats. One cluster alone has no copy.

    Args:
        number: of the site.
        networks: that all learn.
        settings: see there.

    Attributes:
        agent: at work; None: none yet.
        cluster: that it is at work in.
        episodes: begun so far.
        begun: updates before the last of them began.
    """

    def __init__(self, number: int, networks: Networks, settings: PaperSettings):
        self.number, self.episodes, self.begun = number, 0, 0
        self.agent: Agent | None = None
        self.cluster: SimulatedCluster | None = None
        self.networks = networks if settings.agents == 1 else networks.copy()
        self._replay = Replay(settings.replay) if settings.replay else None
        self._batch = settings.batch

    def batch(self, samples: PaperExperience, random: np.random.Generator) -> tuple[PaperExperience, Floats] | None:
        """Return what an update learns from, after a slot with these samples, or None: there is not enough yet."""
        if self._replay is None:
            return (samples, np.ones(len(samples.actions))) if len(samples.actions) else None
        self._replay.add(samples)
        return self._replay.draw(self._batch, random) if len(self._replay) >= self._batch else None

    def begin(self, cluster: SimulatedCluster) -> Agent:
        """Work in this cluster from now on."""
        self.cluster, self.agent = cluster, Agent(cluster)
        return self.agent

    def state(self) -> dict[str, Any]:
        """Return all that its next slot depends on."""
        return {
            "episodes": self.episodes,
            "begun": self.begun,
            "cluster": None if self.cluster is None else self.cluster.lanes.state(),
            "networks": self.networks.state(),
            "replay": None if self._replay is None else self._replay.state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from there, but for the agent. Raises what `plain.restored` expects."""
        self.episodes, self.begun = whole(state["episodes"], int(state["cluster"] is not None)), whole(state["begun"])
        self.networks.load_state(state["networks"])
        if self._replay is not None:
            policy = self.networks.policy
            self._replay.load_state(state["replay"], policy.places, row_width(len(policy.models)))
