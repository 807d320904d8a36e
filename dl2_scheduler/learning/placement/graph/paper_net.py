"""This module is the networks of the graph paper's own agents, to train: `policies.learnt.graph.paper_agents` decides.

Each agent has a convolution over the inside of its partition, an encoder, a convolution over the graph of partitions,
an actor and a critic; what others tell it is given, and not trained through it.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from dl2_scheduler.learning.placement.graph.net import EdgeConv, wired
from dl2_scheduler.policies.learnt.graph.agents import BETWEEN, INNER
from dl2_scheduler.policies.learnt.graph.paper_agents import ENCODED, HIDDEN, TOLD, VERTEX, PaperAgents
from dl2_scheduler.policies.learnt.graph.paper_inputs import PAPER_VERTEX, PaperInputs, jobs_width
from dl2_scheduler.policies.learnt.graph.pod_graphs import ClusterGraphs


class PaperNet(nn.Module):
    """This network is one agent's.

    Args:
        graphs: of the cluster.
        pod: the agent's partition.
        models: how many there are.
    """

    def __init__(self, graphs: ClusterGraphs, pod: int, models: int):
        super().__init__()
        self._pod, self._groups, self._pods = pod, len(graphs.pods[pod].groups), len(graphs.pods)
        self._inside, self._around = wired([graphs.pods[pod].edges], [0]), wired([graphs.between.edges], [0])
        self._switches = len(graphs.between.edges.start) - 1 - len(graphs.pods)
        known = (1 + BETWEEN) * TOLD
        self.inner = nn.ModuleList(EdgeConv(a, b) for a, b in pairwise([PAPER_VERTEX, *[VERTEX] * INNER]))
        self.between = nn.ModuleList(EdgeConv(TOLD, TOLD) for _ in range(BETWEEN))
        self.encode = nn.Linear(jobs_width(models) + self._groups * VERTEX, ENCODED)
        self.tell = nn.Linear(ENCODED, TOLD)
        self.hidden = nn.Linear(known, HIDDEN)
        self.actor = nn.Linear(HIDDEN, self._groups + self._pods)
        self.critic = nn.Sequential(nn.Linear(known, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    def forward(self, own: Sequence[PaperInputs], told: Tensor, between: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the scores of actions, (tasks, groups + partitions), and what states are worth, (tasks,).

        Args:
            own: what the agent read for each task.
            told: what the others told it then, (tasks, partitions, TOLD); its own row does not matter.
            between: numbers of the edges between partitions then, (tasks, edges, NUMBERS).
        """
        values, numbers, about = (
            torch.from_numpy(np.stack([getattr(each, name) for each in own])) for name in ("rows", "numbers", "about")
        )
        for layer in self.inner:
            values = layer(self._inside, numbers, values)
        seen = torch.cat([about, values[:, : self._groups].flatten(1)], dim=1)
        mine = torch.relu(self.tell(torch.relu(self.encode(seen))))
        is_mine = torch.arange(self._pods)[:, None] == self._pod
        heard = torch.where(is_mine, mine[:, None], told)
        heard, layers = torch.cat([heard, torch.zeros(len(own), self._switches, TOLD)], dim=1), [mine]
        for layer in self.between:
            heard = layer(self._around, between, heard)
            layers.append(heard[:, self._pod])
        state = torch.cat(layers, dim=1)
        scores: Tensor = self.actor(torch.relu(self.hidden(state)))
        return scores, self.critic(state)[:, 0]


def paper_policy(nets: Sequence[PaperNet]) -> PaperAgents:
    """Return the policy of all agents with their present weights."""
    arrays = {}
    for agent, net in enumerate(nets):
        for name, value in net.state_dict().items():
            if not name.startswith("critic."):
                arrays[f"{agent}.{name}"] = value.detach().numpy().copy()
    return PaperAgents(arrays)
