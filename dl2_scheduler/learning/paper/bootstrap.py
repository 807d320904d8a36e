"""From nothing to the paper's network that decides as an existing scheduler does (DL2, section 4.2)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.snapshot import Snapshot
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.bootstrap import JUDGING, BootstrapSettings, Tell, follow
from dl2_scheduler.learning.lessons import Lessons, by_cluster
from dl2_scheduler.learning.paper.imitation import ImitationLoss, TeacherDecisions, decisions, imitate
from dl2_scheduler.learning.paper.judging import cluster_of, completion_time
from dl2_scheduler.learning.paper.networks import PaperPolicy, PaperValue, described
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.learning.teacher import of_grants
from dl2_scheduler.policies.learnt.actions import Ints
from dl2_scheduler.policies.learnt.paper.policy import PaperDl2
from dl2_scheduler.sim.simulator import SimulatedCluster


@dataclass(frozen=True)
class PaperNetwork:
    """A `PaperNetwork` says what is to be made.

    Attributes:
        places: J: jobs that it sees at once.
        minimum: see `batched.slot_of`.
        loss: by which it imitates.
        kept: see `decisions`.
    """

    places: int = 20
    minimum: bool = True
    loss: ImitationLoss = ImitationLoss.CROSS_ENTROPY
    kept: int = 32


def bootstrap_paper(
    teacher: AllocationPolicy,
    lessons: Lessons,
    speeds: Speeds,
    settings: BootstrapSettings,
    network: PaperNetwork,
    folder: RunFolder,
    tell: Tell,
) -> dict[str, list[float]]:
    """Imitate a teacher; the mean completion times of both in slots, by cluster.

    Args:
        teacher: decides in the episodes that are imitated.
        lessons: the episodes.
        speeds: of the simulated jobs.
        settings: of the imitation.
        network: that imitates.
        folder: begun; the policy is written to it.
        tell: see `Tell`.
    """

    def taught(first: int, count: int) -> Iterator[tuple[Snapshot, Ints]]:
        for number, episode in enumerate(lessons.episodes(first, count), first):
            tell("the teacher decides", number, settings.warm_up + settings.episodes, {})
            yield from observed(teacher, cluster_of(episode, lessons, speeds))

    for _ in taught(0, settings.warm_up):
        pass
    policy = new_policy(network, speeds.models, lessons.seed)
    random = np.random.default_rng(lessons.seed)
    lesson = decisions(taught(settings.warm_up, settings.episodes), policy.weights(), network.kept, random)
    learn(policy, lesson, network.loss, settings.epochs, lessons.seed, folder, tell)
    tell(JUDGING, 0, 1, {})
    judged = lessons.validation(settings.validation)
    times = {}
    for name, decides in (("teacher", teacher), ("policy", PaperDl2(policy.weights()))):
        each = [completion_time(cluster_of(episode, lessons, speeds), decides, f"the {name}") for episode in judged]
        times[name] = np.round(by_cluster(each, len(lessons.clusters)), 4).tolist()
    tell(JUDGING, 1, 1, {})
    return times


def new_policy(network: PaperNetwork, models: Sequence[str], seed: int) -> PaperPolicy:
    """Return a policy that has learnt nothing.

    Args:
        network: the size of it.
        models: types that it is to know.
        seed: of the weights.
    """
    torch.manual_seed(seed)
    return PaperPolicy(models, network.places, network.minimum).eval()


def untrained(network: PaperNetwork, models: Sequence[str], seed: int, folder: RunFolder) -> None:
    """Write a policy and a value network of small random weights, from which pure online learning starts (figure 10).

    Args:
        network: the size of it.
        models: types that it is to know.
        seed: of the weights.
        folder: begun.
    """
    policy, value = new_policy(network, models, seed), PaperValue(len(models), network.places)
    policy.begin_small()
    value.begin_small()
    _save(policy, folder, value=value.state_dict())


def _save(policy: PaperPolicy, folder: RunFolder, **more: Any) -> None:
    folder.save(policy.weights(), {**described(policy), "policy": policy.state_dict(), "updates": 0, **more})


def learn(
    policy: PaperPolicy,
    lesson: TeacherDecisions,
    loss: ImitationLoss,
    epochs: int,
    seed: int,
    folder: RunFolder,
    tell: Tell,
) -> None:
    """Imitate decisions, and write the policy to a folder.

    Args:
        policy: to be changed.
        lesson: what a teacher decided.
        loss: of a mini-batch.
        epochs: passes over the lesson.
        seed: of what is drawn.
        folder: begun.
        tell: see `Tell`.
    """
    follow(imitate(policy, lesson, epochs, seed, loss), epochs, folder, tell)
    _save(policy, folder)


def observed(teacher: AllocationPolicy, cluster: SimulatedCluster) -> Iterator[tuple[Snapshot, Ints]]:
    """Run a policy, and tell of each slot with jobs what it did, as actions in its own order."""
    while not cluster.done:
        now = cluster.snapshot()
        room = FreeResources(now, NodeRule.SPREAD)
        cluster.apply(teacher.allocate(now, room))
        if now.jobs:
            yield now, np.array(of_grants(room.grants, room.least), dtype=np.int64)
        cluster.finish_slot()
