"""Online actor-critic (DL2, section 4.3), with the clipped surrogate of PPO (Schulman et al., 2017).

What is explored is either actions, as in the paper, or priorities: a number drawn for each job and role once a slot,
which is added to the job's scores. Of hundreds of actions drawn one by one most exchange jobs that get the same in the
end, so that the outcome tells nothing; a priority that is drawn for a whole slot changes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dl2_scheduler.learning.networks import SharedPolicy, Value
from dl2_scheduler.learning.rollout import Rollout
from dl2_scheduler.learning.sequences import Slots, probabilities

Floats = NDArray[np.float64]

_VALUE_SCALE = 100.0  # job-slots: values of this size are easy to learn


@dataclass(frozen=True)
class Settings:
    """Of the actor-critic.

    Attributes:
        learning_rate: of the policy's Adam.
        value_learning_rate: of the value network's Adam.
        discount: of a slot's reward.
        trace: lambda of the generalised advantage estimate (Schulman et al., 2016); 0: the temporal difference alone.
        clip: how far the probability of an action may move in one update.
        entropy: weight of the entropy.
        passes: over the slots of an update.
        part: of the slots that the policy learns from in each pass.
        batch: slots of a mini-batch.
        spread: see `Clusters`.
    """

    learning_rate: float = 1e-3
    value_learning_rate: float = 1e-3
    discount: float = 1.0
    trace: float = 0.95
    clip: float = 0.2
    entropy: float = 0.0
    passes: int = 1
    part: float = 0.5
    batch: int = 128
    spread: float = 0.5


def advantages(rewards: Floats, values: Floats, discount: float, trace: float) -> tuple[Floats, Floats]:
    """Of each slot of one lane, and the returns by which the value network learns.

    Args:
        rewards: by slot.
        values: by slot; what comes after the last is worth nothing.
        discount: of a slot.
        trace: lambda.
    """
    following = np.append(values[1:], 0.0)
    errors = rewards + discount * following - values
    found = np.zeros(len(rewards))
    running = 0.0
    for slot in range(len(rewards) - 1, -1, -1):
        running = errors[slot] + discount * trace * running
        found[slot] = running
    return found, found + values


class ActorCritic:
    """Learns from whole rollouts.

    Args:
        policy: to improve.
        settings: see there.
    """

    def __init__(self, policy: SharedPolicy, settings: Settings):
        self.policy = policy
        self.value = Value(len(policy.models))
        self._settings = settings
        self._policy_optimizer = torch.optim.Adam(policy.parameters(), lr=settings.learning_rate)
        self._value_optimizer = torch.optim.Adam(self.value.parameters(), lr=settings.value_learning_rate)

    def state(self) -> dict[str, Any]:
        """All that the next update depends on."""
        return {name: part.state_dict() for name, part in self._parts().items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        for name, part in self._parts().items():
            part.load_state_dict(state[name])

    def _parts(self) -> dict[str, Any]:
        optimizers = {"policy_optimizer": self._policy_optimizer, "value_optimizer": self._value_optimizer}
        return {"policy": self.policy, "value": self.value, **optimizers}

    def update(self, rollout: Rollout, random: np.random.Generator, learn_policy: bool = True) -> dict[str, float]:
        """One update of both networks.

        Args:
            rollout: of the present policy, which explored.
            random: of the order of slots.
            learn_policy: False: the value network alone.
        """
        advantage, returns = self._estimates(rollout)
        value_loss = self._learn_values(rollout.slots, returns, random)
        if not learn_policy:
            return {"value_loss": value_loss}
        scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        with torch.no_grad():
            before = self._logs(rollout.slots)[0]
        clipped = []
        for _ in range(self._settings.passes):
            numbers = random.permutation(len(rollout.slots))[: int(len(rollout.slots) * self._settings.part)]
            for chosen in np.array_split(numbers, max(1, len(numbers) // self._settings.batch)):
                clipped.append(self._learn_policy(rollout.slots, np.sort(chosen), scaled, before))
        return {"value_loss": value_loss, "clipped": float(np.mean(clipped))}

    def _logs(self, slots: Slots) -> tuple[torch.Tensor, torch.Tensor, NDArray[np.int64]]:
        """Log probability of what was drawn, the entropy of it, and the slot of each."""
        if not self._settings.spread:
            return *probabilities(self.policy, slots), slots.slot_of_action
        missed = torch.from_numpy(slots.priority) - self.policy.priorities(torch.from_numpy(slots.rows))
        logs = -0.5 * (missed / self._settings.spread).square().sum(dim=1)
        return logs.double(), torch.zeros(1), slots.slot_of_job

    def _estimates(self, rollout: Rollout) -> tuple[Floats, Floats]:
        with torch.no_grad():
            values = self._values(rollout.slots).numpy() * _VALUE_SCALE
        advantage, returns = np.zeros(len(values)), np.zeros(len(values))
        for lane in np.unique(rollout.lane):
            own = rollout.lane == lane
            rewards = -rollout.waiting[lane][rollout.time[own]]
            advantage[own], returns[own] = advantages(
                rewards, values[own], self._settings.discount, self._settings.trace
            )
        return advantage, returns

    def _values(self, slots: Slots) -> torch.Tensor:
        found: torch.Tensor = self.value(torch.from_numpy(slots.rows), torch.from_numpy(slots.slot_of_job), len(slots))
        return found

    def _learn_values(self, slots: Slots, returns: Floats, random: np.random.Generator) -> float:
        losses = []
        order = random.permutation(len(slots))
        for numbers in np.array_split(order, max(1, len(order) // self._settings.batch)):
            chosen = slots.chosen(np.sort(numbers))
            wanted = torch.from_numpy(returns[np.sort(numbers)] / _VALUE_SCALE).float()
            loss = torch.nn.functional.huber_loss(self._values(chosen), wanted)
            self._value_optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self._value_optimizer.step()
            losses.append(float(loss.detach()))
        return float(np.mean(losses))

    def _learn_policy(self, slots: Slots, numbers: NDArray[np.int64], advantage: Floats, before: torch.Tensor) -> float:
        """One step along the clipped surrogate; the part of what was drawn that was clipped."""
        chosen = slots.chosen(numbers)
        whole = slots.slot_of_job if self._settings.spread else slots.slot_of_action
        logs, entropy, slot = self._logs(chosen)
        weight = torch.from_numpy(advantage[numbers][slot])
        ratio = torch.exp(logs - before[torch.from_numpy(np.isin(whole, numbers))])
        clip = self._settings.clip
        surrogate = torch.minimum(ratio * weight, ratio.clamp(1 - clip, 1 + clip) * weight)
        loss = -surrogate.mean() - self._settings.entropy * entropy.mean()
        self._policy_optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self._policy_optimizer.step()
        return float(((ratio - 1).abs() > clip).double().mean().detach())
