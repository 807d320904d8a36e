"""The actor is the policy network, led by cross entropy towards what the critic prefers in the slots that it meets.

DL2's own loss, the policy gradient of REINFORCE, is in `paper.policy_gradient`.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from dl2_scheduler.learning.networks import SharedPolicy
from dl2_scheduler.learning.plain import load_adam
from dl2_scheduler.learning.sequences import Slots, probabilities
from dl2_scheduler.policies.learnt.features import width
from dl2_scheduler.policies.learnt.weights import Weights

Tensors = tuple[Tensor, ...] | list[Tensor]


@dataclass(frozen=True)
class ActorSettings:
    """These settings are those of `Actor`.

    Attributes:
        learning_rate: of Adam.
        replay: updates whose slots are learnt from: slots of several times are not alike (DL2, section 4.3).
        passes: over as many slots as an update brought, in each update.
        batch: slots of a mini-batch.
        average: part of the averaged weights, those that decide, that a mini-batch leaves as it was.
        young: mini-batches in which the averaged weights are young, and less of them is left; 0: none.
    """

    learning_rate: float = 3e-3
    replay: int = 4
    passes: int = 2
    batch: int = 64
    average: float = 0.99
    young: int = 0


class Actor:
    """Minimises the cross entropy of improved decisions; its averaged weights decide.

    Args:
        policy: to improve.
        settings: see there.
    """

    def __init__(self, policy: SharedPolicy, settings: ActorSettings):
        self._policy, self._settings = policy, settings
        self._average = AveragedModel(policy, multi_avg_fn=self._mean)
        self._optimizer = torch.optim.Adam(policy.parameters(), lr=settings.learning_rate)
        self._replay: deque[Slots] = deque(maxlen=settings.replay)

    @property
    def models(self) -> tuple[str, ...]:
        """Types of jobs that it knows."""
        return self._policy.models

    def weights(self) -> Weights:
        """Return the weights that decide."""
        weights: Weights = self._average.module.weights()  # type: ignore[operator]
        return weights

    def state(self) -> dict[str, Any]:
        """Return all that the next update depends on."""
        replay = [slots.state() for slots in self._replay]
        return {**{name: part.state_dict() for name, part in self._parts().items()}, "replay": replay}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from there. Raises what `plain.restored` expects."""
        self._policy.load_state_dict(state["policy"])
        self._average.load_state_dict(state["average"])
        load_adam(self._optimizer, state["optimizer"])
        features = width(len(self.models))
        self._replay.extend(Slots.of(slots, features) for slots in state["replay"])

    def adopt(self, weights: Weights) -> None:
        """Go on from the weights of another policy, which is as large; what was learnt of slots is kept."""
        state = {name: torch.from_numpy(np.array(array)) for name, array in weights.arrays.items()}
        for policy in (self._policy, self._average.module):
            policy.load_state_dict(state)
        self._optimizer = torch.optim.Adam(self._policy.parameters(), lr=self._settings.learning_rate)

    def _mean(self, averaged: Tensors, now: Tensors, count: Tensor | int) -> None:
        """Move the averaged weights, which follow fast as long as they are young."""
        kept = min(self._settings.average, float((1 + count) / (1 + self._settings.young + count)))
        get_ema_multi_avg_fn(kept)(averaged, now, count)  # type: ignore[no-untyped-call]

    def _parts(self) -> dict[str, Any]:
        return {"policy": self._policy, "average": self._average, "optimizer": self._optimizer}

    def learn(self, lessons: Slots, random: np.random.Generator) -> float:
        """Learn improved decisions; their mean cross entropy, by action.

        Args:
            lessons: slots of this update, with the actions that should have been taken.
            random: of the order of slots.
        """
        self._replay.append(lessons)
        slots = Slots.joined(list(self._replay))
        total, actions = 0.0, 0
        for _ in range(self._settings.passes):
            order = random.choice(len(slots), len(lessons), replace=False)
            for numbers in np.array_split(order, max(1, len(order) // self._settings.batch)):
                chosen = slots.chosen(np.sort(numbers))
                loss = -probabilities(self._policy, chosen).mean()
                self._optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                self._optimizer.step()
                self._average.update_parameters(self._policy)
                total += float(loss.detach()) * len(chosen.actions)
                actions += len(chosen.actions)
        return total / actions
