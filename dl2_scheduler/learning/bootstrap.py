"""From nothing to a policy that decides as an existing scheduler does (DL2, section 4.2)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.lessons import Lessons, by_cluster
from dl2_scheduler.learning.networks import SharedPolicy
from dl2_scheduler.learning.rollout import Clusters, Episode, Rollout, judged_times, roll_out, taught_by, tell_of_late
from dl2_scheduler.learning.run_folder import Curves, RunFolder
from dl2_scheduler.learning.sequences import Slots
from dl2_scheduler.learning.supervised import imitate
from dl2_scheduler.learning.teacher import PolicyTeacher

Tell = Callable[[str, int, int, dict[str, float]], None]
"""Told of progress: what is done, how much of it, of how much, and its numbers."""

JUDGING = "teacher and policy are judged"
"""The last part of the work, as `Tell` hears of it."""


@dataclass(frozen=True)
class BootstrapSettings:
    """These settings are those of `bootstrap`.

    Attributes:
        warm_up: episodes in which the teacher decides before it is imitated: one that fits speeds knows little then.
        episodes: that are imitated.
        epochs: passes over them.
        validation: episodes of each cluster by which teacher and policy are compared.
    """

    warm_up: int = 24
    episodes: int = 24
    epochs: int = 12
    validation: int = 4


def bootstrap(
    teacher: AllocationPolicy,
    lessons: Lessons,
    speeds: Speeds,
    settings: BootstrapSettings,
    folder: RunFolder,
    tell: Tell,
) -> dict[str, list[float]]:
    """Imitate a teacher; the mean completion times of both in slots, by cluster.

    Args:
        teacher: decides in the episodes that are imitated.
        lessons: the episodes.
        speeds: of the simulated jobs.
        settings: see there.
        folder: begun; the policy is written to it.
        tell: see `Tell`.
    """
    torch.manual_seed(lessons.seed)
    policy = SharedPolicy(speeds.models)
    decides = taught_by(PolicyTeacher(teacher))

    def clusters_of(episodes: Sequence[Episode]) -> Clusters:
        return Clusters(episodes, speeds, speeds.models, cost=lessons.cost)

    def taught(first: int, count: int) -> Rollout:
        tell("the teacher decides", first, settings.warm_up + settings.episodes, {})
        return roll_out(clusters_of(lessons.episodes(first, count)), policy.weights(), decides)

    tell_of_late(lessons.episodes(0, 1)[0].jobs)
    if settings.warm_up:
        taught(0, settings.warm_up)
    lesson = taught(settings.warm_up, settings.episodes)
    learn(policy, lesson.slots, settings.epochs, lessons.seed, folder, tell)
    tell(JUDGING, 0, 1, {})
    judged = lessons.validation(settings.validation)
    found = {}
    for name, guide in (("teacher", decides), ("policy", None)):
        times = judged_times(clusters_of(judged), policy.weights(), guide, f"the {name}").tolist()
        found[name] = np.round(by_cluster(times, len(lessons.clusters)), 4).tolist()
    tell(JUDGING, 1, 1, {})
    return found


def learn(policy: SharedPolicy, slots: Slots, epochs: int, seed: int, folder: RunFolder, tell: Tell) -> None:
    """Imitate what was done in slots, and write the policy to a folder.

    Args:
        policy: to be changed.
        slots: as a teacher filled them.
        epochs: passes over them.
        seed: of what is drawn.
        folder: begun.
        tell: see `Tell`.
    """
    follow(imitate(policy, slots, epochs, seed), epochs, folder, tell)
    folder.save(policy.weights(), {"policy": policy.state_dict(), "models": policy.models, "updates": 0})


def follow(losses: Iterable[float], epochs: int, folder: RunFolder, tell: Tell) -> None:
    """Imitate to the end.

    Args:
        losses: of the epochs, each of which is done when it is asked for.
        epochs: how many they are.
        folder: takes their curve.
        tell: see `Tell`.
    """
    curves = Curves(folder, "imitation")
    for epoch, loss in enumerate(losses, 1):
        curves.add(epoch, {"imitation/loss": loss})
        tell("imitation", epoch, epochs, {"loss": loss})
    curves.close()
