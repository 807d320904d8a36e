"""The policy network of Chic with its framework (section 5), and how it is fitted to decisions."""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from dl2_scheduler.learning.chic.settings import ChicSettings
from dl2_scheduler.policies.chic.network import Network
from dl2_scheduler.policies.chic.phase import PhaseRules, PhaseSteps, actions_of, inputs_of

_NOT_ALLOWED = -1e9


class ChicNet(nn.Module):
    """Three hidden layers, of which the first one has dropout; scores of all actions.

    Args:
        rules: of phases, by which the sizes of input and output are known.
        settings: of the hidden layers.
    """

    def __init__(self, rules: PhaseRules, settings: ChicSettings):
        super().__init__()
        sizes = inputs_of(rules), *settings.hidden, actions_of(rules)
        first, second, third, last = (nn.Linear(*pair) for pair in pairwise(sizes))
        hidden = first, nn.ReLU(), nn.Dropout(settings.dropout), second, nn.ReLU(), third, nn.ReLU()
        self.layers = nn.Sequential(*hidden, last)

    def forward(self, states: Tensor) -> Tensor:
        """Compute the scores of all actions, (states, actions)."""
        scores: Tensor = self.layers(states)
        return scores

    def network(self) -> Network:
        """Return the weights as acting takes them."""
        linear = [layer for layer in self.layers if isinstance(layer, nn.Linear)]
        pairs = [(layer.weight.detach().double().numpy().T, layer.bias.detach().double().numpy()) for layer in linear]
        arrays = [np.array(array, order="C") for pair in pairs for array in pair]
        return Network(*arrays)


def minus_log_likelihood(net: ChicNet, states: Tensor, actions: Tensor, allowed: Tensor) -> Tensor:
    """Compute the mean of -log pi(a | s) over decisions; the paper prints pi, whose sum has another maximum.

    Args:
        net: that decides.
        states: (decisions, inputs).
        actions: what was done, (decisions,).
        allowed: what could have been done, (decisions, actions).
    """
    scores = net(states).masked_fill(~allowed, _NOT_ALLOWED)
    return nn.functional.cross_entropy(scores, actions)


def fit(
    net: ChicNet, steps: PhaseSteps, optimizer: torch.optim.Optimizer, passes: int, batch: int, fall: bool = False
) -> float:
    """Make decisions more likely, and return the loss of the last pass.

    Args:
        net: to be fitted.
        steps: the decisions.
        optimizer: of its weights.
        passes: over all decisions.
        batch: decisions.
        fall: the learning rate falls to a fiftieth from the first to the last batch.
    """
    states, actions = torch.from_numpy(steps.states).float(), torch.from_numpy(steps.actions)
    allowed = torch.from_numpy(steps.allowed)
    rates = [group["lr"] for group in optimizer.param_groups]
    batches = passes * -(-len(actions) // batch)
    done, total = 0, 0.0
    net.train()
    for _ in range(passes):
        total = 0.0
        order = torch.randperm(len(actions))
        for start in range(0, len(actions), batch):
            some = order[start : start + batch]
            loss = minus_log_likelihood(net, states[some], actions[some], allowed[some])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += float(loss.detach()) * len(some)
            done += 1
            if fall:
                for group, rate in zip(optimizer.param_groups, rates, strict=True):
                    group["lr"] = rate * max(0.02, 1 - done / batches)
    net.eval()
    return total / len(actions)
