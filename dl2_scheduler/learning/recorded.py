"""From recorded decisions of a scheduler to a policy that decides alike (DL2, section 4.2), by either network."""

from collections.abc import Sequence

import numpy as np
import torch

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.bootstrap import Tell, learn
from dl2_scheduler.learning.lessons import Lessons, by_cluster
from dl2_scheduler.learning.networks import SharedPolicy
from dl2_scheduler.learning.paper import bootstrap as paper
from dl2_scheduler.learning.paper.imitation import decisions
from dl2_scheduler.learning.paper.judging import cluster_of, completion_time
from dl2_scheduler.learning.run_folder import RunFolder
from dl2_scheduler.learning.sequences import Slots
from dl2_scheduler.learning.teacher import of_counts
from dl2_scheduler.policies.learnt.actions import STOP, Ints
from dl2_scheduler.policies.learnt.features import features, of_room
from dl2_scheduler.policies.learnt.fill import filled
from dl2_scheduler.policies.learnt.weights import Weights, share_of
from dl2_scheduler.sim.history import Decision

_LEAST = 2  # slots, and decisions


def models_of(history: Sequence[Decision]) -> set[str]:
    """Return the types of the jobs of a history."""
    return {state.job.model for now, _ in history for state in now.jobs}


def learn_history(
    history: Sequence[Decision],
    models: Sequence[str],
    network: paper.PaperNetwork | None,
    epochs: int,
    seed: int,
    folder: RunFolder,
    tell: Tell,
) -> None:
    """Imitate recorded decisions, and write the policy to a folder.

    Args:
        history: the decisions.
        models: types that the network is to know.
        network: the paper's; None: ours, which all jobs share.
        epochs: passes over the decisions.
        seed: of what is drawn.
        folder: begun.
        tell: see `Tell`.

    Raises:
        BadInput: hardly anything was decided there.
    """
    taught = [
        (now, np.array(of_counts(grants, FreeResources(now).least), dtype=np.int64))
        for now, grants in history
        if now.jobs
    ]
    _check_enough(len(taught))
    if network is None:
        torch.manual_seed(seed)
        policy = SharedPolicy(models)
        slots = Slots.joined([slot_of(FreeResources(now), actions, policy.weights()) for now, actions in taught])
        _check_enough(len(slots.actions))
        learn(policy, slots, epochs, seed, folder, tell)
    else:
        learner = paper.new_policy(network, models, seed)
        lesson = decisions(taught, learner.weights(), network.kept, np.random.default_rng(seed))
        _check_enough(len(lesson.actions))
        paper.learn(learner, lesson, network.loss, epochs, seed, folder, tell)


def _check_enough(count: int) -> None:
    """Refuse to imitate next to nothing: batch normalisation knows no spread of one decision. Raises BadInput."""
    if count < _LEAST:
        raise BadInput(
            f"--history: it has {count} slots with jobs, or decisions for which its nodes have room: give {_LEAST} "
            "at least"
        )


def judged(policy: AllocationPolicy, lessons: Lessons, speeds: Speeds, count: int) -> list[float]:
    """Mean completion times of a policy in slots, by cluster.

    Args:
        policy: decides.
        lessons: their episodes for judging.
        speeds: of the simulated jobs.
        count: episodes of each cluster.
    """
    times = [completion_time(cluster_of(each, lessons, speeds), policy) for each in lessons.validation(count)]
    return by_cluster(times, len(lessons.clusters))


def slot_of(room: FreeResources, actions: Ints, weights: Weights) -> Slots:
    """Return a slot as a teacher filled it, for the network that all jobs share.

    Args:
        room: of the slot, empty.
        actions: of the teacher; those for which there is no room are left out.
        weights: of the network that is to learn; what it would do is of no account.
    """
    inputs, tasks = of_room(room, weights.models)
    rows, share = features(inputs, len(weights.models)), share_of(inputs)
    scores = weights.scores(rows, share, int(tasks.most.max()))
    done = filled(tasks, scores, room.capacity, int(room.rule), forced=np.append(actions, STOP))
    ends = np.array([0, len(rows)]), np.array([0, len(done.actions)])
    return Slots(rows, share, tasks.least, tasks.most, tasks.runs, done.closed, ends[0], done.actions, ends[1])
