"""A policy is made here: by our learning, or by the paper's; first it imitates, then it learns online."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.figures.scale import OURS, PAPER
from dl2_scheduler.learning.lessons import Lessons
from dl2_scheduler.learning.networks import new_policy
from dl2_scheduler.learning.online import Online, OnlineSettings
from dl2_scheduler.learning.paper.bootstrap import PaperNetwork, observed
from dl2_scheduler.learning.paper.bootstrap import new_policy as new_paper_policy
from dl2_scheduler.learning.paper.imitation import decisions
from dl2_scheduler.learning.paper.imitation import imitate as imitate_paper
from dl2_scheduler.learning.paper.judging import cluster_of
from dl2_scheduler.learning.paper.networks import PaperPolicy, described
from dl2_scheduler.learning.paper.online import PaperOnline
from dl2_scheduler.learning.paper.settings import PaperSettings
from dl2_scheduler.learning.rollout import Clusters, roll_out, taught_by
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.learning.supervised import imitate
from dl2_scheduler.learning.teacher import PolicyTeacher
from dl2_scheduler.policies.learnt.paper.weights import PaperWeights
from dl2_scheduler.policies.learnt.weights import Weights
from dl2_scheduler.policies.registry import make_policy
from dl2_scheduler.sim.catalogue import CATALOGUE

ALL_TYPES = tuple(CATALOGUE)


class Made(NamedTuple):
    """A policy while it is made.

    Attributes:
        weights: that decide.
        state: from which online learning goes on.
    """

    weights: Weights | PaperWeights
    state: Mapping[str, Any]


@dataclass(frozen=True)
class Recipe:
    """A `Recipe` has what both learners have.

    Attributes:
        teacher: a policy's name; None: online learning begins from random weights.
        updates: of online learning.
        judge_every: updates.
        stages: (update, models): from which update on jobs train which models.
        analytic: it learns on an analytical model of the speeds; it is judged on the true ones all the same.
        seed: of everything that it learns from.
    """

    updates: int
    judge_every: int
    teacher: str | None = "drf"
    stages: tuple[tuple[int, tuple[str, ...]], ...] = ((0, ALL_TYPES),)
    analytic: bool = False
    seed: int = 0

    def models(self, update: int) -> tuple[str, ...]:
        """Return the models that jobs train after so many updates."""
        return next(models for begin, models in reversed(self.stages) if begin <= update)


@dataclass(frozen=True)
class Ours(Recipe):
    """This recipe makes a policy by our learning, of `dl2_scheduler.learning.online`.

    Attributes:
        settings: of it.
    """

    settings: OnlineSettings = field(default=OURS)

    def imitation(self) -> "Ours":
        """Return what its imitation depends on: a recipe that other runs may share."""
        return Ours(0, 1, self.teacher, self.stages[:1], self.analytic, self.seed)

    def imitate(self, lessons: Lessons, speeds: Speeds, episodes: int, epochs: int) -> Iterator[Made]:
        """Yield the policy before imitation and after each pass over a teacher's decisions.

        Args:
            lessons: the episodes.
            speeds: of the simulated jobs.
            episodes: to imitate.
            epochs: passes.
        """
        policy = new_policy(speeds.models, self.seed)
        yield Made(policy.weights(), {"policy": policy.state_dict(), "models": policy.models, "updates": 0})
        if self.teacher is None:
            return
        decides = taught_by(PolicyTeacher(make_policy(self.teacher, speeds)))
        clusters = Clusters(lessons.episodes(0, episodes), speeds, speeds.models, cost=lessons.cost)
        slots = roll_out(clusters, policy.weights(), decides).slots
        for _ in imitate(policy, slots, epochs, self.seed):
            yield Made(policy.weights(), {"policy": policy.state_dict(), "models": policy.models, "updates": 0})

    def learner(self, folder: RunFolder, lessons: Lessons, speeds: Speeds, start: RunFolder | None) -> Online:
        """See `Online`."""
        return Online(folder, lessons, speeds, self.settings, start)


@dataclass(frozen=True)
class Paper(Recipe):
    """This recipe makes a policy by the paper's learning, of `dl2_scheduler.learning.paper`.

    Attributes:
        network: that learns.
        settings: of its online learning.
    """

    network: PaperNetwork = field(default_factory=PaperNetwork)
    settings: PaperSettings = field(default=PAPER)

    def imitation(self) -> "Paper":
        """See `Ours.imitation`."""
        return replace(self, updates=0, judge_every=1, stages=self.stages[:1], settings=PAPER)

    def imitate(self, lessons: Lessons, speeds: Speeds, episodes: int, epochs: int) -> Iterator[Made]:
        """See `Ours.imitate`."""
        policy = new_paper_policy(self.network, speeds.models, self.seed)
        yield _made(policy)
        if self.teacher is None:
            return
        teacher, random = make_policy(self.teacher, speeds), np.random.default_rng(self.seed)
        taught = chain.from_iterable(
            observed(teacher, cluster_of(episode, lessons, speeds)) for episode in lessons.episodes(0, episodes)
        )
        lesson = decisions(taught, policy.weights(), self.network.kept, random)
        for _ in imitate_paper(policy, lesson, epochs, self.seed, self.network.loss):
            yield _made(policy)

    def learner(self, folder: RunFolder, lessons: Lessons, speeds: Speeds, start: RunFolder | None) -> PaperOnline:
        """See `PaperOnline`: types that come later come with its next episode, as one under way keeps its jobs."""
        first = replace(lessons, models=self.models(0))
        return PaperOnline(folder, first, speeds, replace(self.settings, late_types=self.stages[1:]), start)


def _made(policy: PaperPolicy) -> Made:
    return Made(policy.weights(), {**described(policy), "policy": policy.state_dict(), "updates": 0})
