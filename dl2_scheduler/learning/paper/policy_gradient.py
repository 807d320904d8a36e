"""REINFORCE with a value network, from a replay buffer (DL2, section 4.3)."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dl2_scheduler.learning.paper.experience import Floats, PaperExperience
from dl2_scheduler.learning.paper.networks import PaperPolicy, PaperValue
from dl2_scheduler.learning.paper.settings import PaperSettings
from dl2_scheduler.learning.plain import load_adam

_FORGETTING = 0.01  # of the moving average of rewards, by slot


class Networks:
    """These are the two networks that learn together.

    Args:
        policy: scores actions.
        value: expects rewards.
    """

    def __init__(self, policy: PaperPolicy, value: PaperValue):
        self.policy, self.value = policy, value
        # Normalisation stays as imitation left it: a buffer's mini-batch is not what the policy acts on, and what is
        # learnt must be the probabilities by which it acted. The published code never updates it at all.
        policy.eval()
        value.eval()

    def copy(self) -> "Networks":
        """Return copies of both, which change by themselves."""
        return Networks(copy.deepcopy(self.policy), copy.deepcopy(self.value))

    def load(self, other: "Networks") -> None:
        """Take the weights of others."""
        self.policy.load_state_dict(other.policy.state_dict())
        self.value.load_state_dict(other.value.state_dict())

    def state(self) -> dict[str, Any]:
        """Return both as a checkpoint has them."""
        return {"policy": self.policy.state_dict(), "value": self.value.state_dict()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.policy.load_state_dict(state["policy"])
        self.value.load_state_dict(state["value"])


def targets(samples: PaperExperience, networks: Networks, settings: PaperSettings) -> Tensor:
    """Return what the rewards of each sample add up to: those of its slot, and what is expected from the next slot on.

    Every inference of a slot has the same: nothing is discounted within a slot.

    Args:
        samples: a mini-batch.
        networks: both.
        settings: see there.
    """
    rewards = torch.from_numpy(samples.rewards).float()
    if not settings.value_network:
        return rewards
    with torch.no_grad():
        expected = networks.value(torch.from_numpy(samples.following))
    return rewards + settings.discount * torch.where(torch.from_numpy(samples.final), 0.0, expected)


def losses(
    samples: PaperExperience, corrections: Floats, networks: Networks, settings: PaperSettings, average: float
) -> tuple[Tensor, Tensor, dict[str, float]]:
    """Return the losses of the policy and of the value network, and what is of interest in them.

    Args:
        samples: a mini-batch.
        corrections: weight of each sample's advantage.
        networks: both.
        settings: see there.
        average: moving average of rewards, the baseline where there is no value network.
    """
    states, masks = torch.from_numpy(samples.states), torch.from_numpy(samples.masks)
    wanted = targets(samples, networks, settings)
    values = networks.value(states) if settings.value_network else torch.full_like(wanted, average)
    value_loss = (values - wanted).square().mean()
    advantage = (wanted - values.detach()) * torch.from_numpy(corrections).float()
    logs = networks.policy.logs(states, masks)
    chosen = logs.gather(1, torch.from_numpy(samples.actions)[:, None]).squeeze(1)
    entropy = -(logs.exp() * logs.masked_fill(~masks, 0.0)).mean()  # over samples and actions
    policy_loss = -(chosen * advantage).mean() - settings.entropy * entropy
    numbers = {
        "value_loss": float(value_loss.detach()),
        "advantage": float(advantage.mean()),
        "entropy": float(entropy.detach()) * logs.shape[1],
        "value": float(values.detach().mean()),
    }
    return policy_loss, value_loss, numbers


class PaperLearner:
    """The learner updates both networks by Adam, with gradients that may have been found by copies of them.

    Args:
        networks: that learn.
        settings: see there.
    """

    def __init__(self, networks: Networks, settings: PaperSettings):
        self.networks = networks
        self._settings = settings
        self._optimizers = [
            torch.optim.Adam(network.parameters(), lr=settings.learning_rate)
            for network in (networks.policy, networks.value)
        ]
        self.average: float | None = None

    def reward(self, reward: float) -> None:
        """Take a slot's reward into the moving average."""
        self.average = reward if self.average is None else self.average + _FORGETTING * (reward - self.average)

    def update(self, samples: PaperExperience, corrections: Floats, copies: Networks) -> dict[str, float]:
        """Make one update by the gradients of copies of the networks, which may be older; return its numbers.

        Args:
            samples: a mini-batch.
            corrections: weight of each sample's advantage, (samples,).
            copies: the networks whose gradients are taken.
        """
        policy_loss, value_loss, numbers = losses(samples, corrections, copies, self._settings, self.average or 0.0)
        pairs: list[tuple[nn.Module, nn.Module, Tensor]] = [(copies.policy, self.networks.policy, policy_loss)]
        if self._settings.value_network:
            pairs.append((copies.value, self.networks.value, value_loss))
        for (older, newer, loss), optimizer in zip(pairs, self._optimizers, strict=False):
            gradients = torch.autograd.grad(loss, list(older.parameters()))
            for parameter, gradient in zip(newer.parameters(), gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()
        return numbers

    def state(self) -> dict[str, Any]:
        """Return all that the next update depends on."""
        optimizers = [optimizer.state_dict() for optimizer in self._optimizers]
        return {**self.networks.state(), "optimizers": optimizers, "average": self.average}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.networks.load_state(state)
        self.average = None if state["average"] is None else float(state["average"])
        for optimizer, found in zip(self._optimizers, state["optimizers"], strict=True):
            load_adam(optimizer, found)
