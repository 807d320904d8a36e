"""Offline supervised learning: imitate the decisions of an existing scheduler (DL2, section 4.2)."""

from collections.abc import Iterator

import numpy as np
import torch

from dl2_scheduler.learning.networks import SharedPolicy
from dl2_scheduler.learning.sequences import Slots, probabilities

LEARNING_RATE = 0.005
_SLOTS = 64  # of a mini-batch


def imitate(
    policy: SharedPolicy, slots: Slots, epochs: int, seed: int, learning_rate: float = LEARNING_RATE
) -> Iterator[float]:
    """Learn a teacher's actions by their cross entropy; yield each epoch's mean.

    Args:
        policy: to be changed.
        slots: as the teacher filled them.
        epochs: passes over all slots.
        seed: of their order.
        learning_rate: of Adam; it falls to a hundredth along half a cosine.
    """
    random = np.random.default_rng(seed)
    optimizer = torch.optim.Adam(policy.parameters(), lr=learning_rate)
    steps = epochs * -(-len(slots) // _SLOTS)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, learning_rate / 100)
    for _ in range(epochs):
        total = count = 0.0
        for numbers in np.array_split(random.permutation(len(slots)), -(-len(slots) // _SLOTS)):
            chosen = slots.chosen(np.sort(numbers))
            loss = -probabilities(policy, chosen).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            total += float(loss.detach()) * len(chosen.actions)
            count += len(chosen.actions)
        yield total / count
