"""This module is the graph scheduler as its paper has it: each agent with weights of its own, for one cluster's sizes.

An agent reads its partition and its jobs, encodes them, hears what the others make of theirs, and chooses a group of
its own, or another agent, for each task. It cannot wait, and decides for the jobs of one interval. What the paper
leaves out (widths, masks, how often a job may be forwarded) is as `agents` has it, or as `learning.placement.graph`
says. `learning.placement.graph.paper_run` makes the weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.policies.learnt.array_files import Shape
from dl2_scheduler.policies.learnt.graph.agent_inputs import TaskInputs, Watched
from dl2_scheduler.policies.learnt.graph.agents import BETWEEN, INNER, place_by_agents
from dl2_scheduler.policies.learnt.graph.edge_conv import F32, convolved
from dl2_scheduler.policies.learnt.graph.paper_inputs import (
    PAPER_VERTEX,
    PaperInputs,
    jobs_width,
    paper_actions,
    paper_inputs,
)
from dl2_scheduler.policies.learnt.graph.pod_graphs import NUMBERS, ClusterGraphs, cluster_graphs

VERTEX, ENCODED, TOLD, HIDDEN = 64, 256, 128, 128
"""Widths: of a vertex inside, of the encoder's hidden layer, of what an agent tells, of the actor's hidden layer."""


@dataclass(frozen=True)
class PaperAgents:
    """See `PlacementPolicy`: the likeliest of each agent's actions decides.

    Attributes:
        arrays: of all agents, by name, as `learning.placement.graph.paper_net.PaperNet` has them, each behind its
            agent's number and a dot.
    """

    arrays: Mapping[str, F32]

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`. Raises BadInput: the cluster is not that of the agents."""
        scorer = PaperScorer(self.arrays, cluster_graphs(view.machines, view.topology))

        def best(watched: Watched, inputs: TaskInputs) -> int:
            allowed = paper_actions(inputs)
            if not allowed.any():
                return len(allowed)  # it waits
            return int(np.where(allowed, scorer.scores(watched, inputs), -np.inf).argmax())

        return place_by_agents(view, best)


class PaperScorer:
    """A `PaperScorer` gives scores while one placement is made.

    Args:
        arrays: see `PaperAgents`.
        graphs: of the cluster.

    Raises:
        BadInput: the cluster is not that of the agents.
    """

    def __init__(self, arrays: Mapping[str, F32], graphs: ClusterGraphs):
        own = [len(arrays[f"{agent}.actor.bias"]) for agent in range(agents_in(arrays))]
        here = [len(pod.groups) + len(graphs.pods) for pod in graphs.pods]
        if own != here:
            raise BadInput(
                f"these agents, learnt as in the paper, are {len(own)} partitions' with "
                f"{'|'.join(str(each - len(own)) for each in sorted(set(own)))} groups each, and the cluster has "
                f"{len(here)} with {'|'.join(str(each - len(here)) for each in sorted(set(here)))}: learn others for it"
            )
        self._of = [_of_agent(arrays, agent) for agent in range(len(own))]
        self._told: dict[int, tuple[int, F32]] = {}  # by agent: the version of its partition, and what it tells

    def scores(self, watched: Watched, inputs: TaskInputs) -> Floats:
        """Return a number for each action, (groups + partitions,)."""
        given, own = self._of[inputs.pod], paper_inputs(watched, inputs.pod, inputs.job, inputs.role)
        told = self.told(watched, inputs.pod)
        told[inputs.pod] = _encoded(given, watched.graphs, inputs.pod, own)
        between = watched.graphs.between
        numbers = watched.numbers(between)
        switches = np.zeros((len(between.edges.start) - 1 - len(told), TOLD), dtype=np.float32)
        values, layers = np.concatenate([told, switches]), [told[inputs.pod]]
        for layer in range(BETWEEN):
            values = convolved(given, f"between.{layer}", between.edges, numbers, values)
            layers.append(values[inputs.pod])
        hidden = np.maximum(given["hidden.weight"] @ np.concatenate(layers) + given["hidden.bias"], 0)
        found: Floats = (given["actor.weight"] @ hidden + given["actor.bias"]).astype(float)
        return found

    def told(self, watched: Watched, asker: int) -> F32:
        """Return what agents tell one that asks; its own row is empty, (agents, TOLD)."""
        found = np.zeros((len(self._of), TOLD), dtype=np.float32)
        for agent, given in enumerate(self._of):
            if agent == asker:
                continue
            version = watched.versions[agent]
            if agent not in self._told or self._told[agent][0] != version:
                own = paper_inputs(watched, agent, None, 0)
                self._told[agent] = version, _encoded(given, watched.graphs, agent, own)
            found[agent] = self._told[agent][1]
        return found


def _encoded(given: Mapping[str, F32], graphs: ClusterGraphs, pod: int, own: PaperInputs) -> F32:
    """Return what an agent makes of its partition and its jobs, (TOLD,)."""
    graph, values = graphs.pods[pod], own.rows
    for layer in range(INNER):
        values = convolved(given, f"inner.{layer}", graph.edges, own.numbers, values)
    seen = np.concatenate([own.about, values[: len(graph.groups)].ravel()])
    first = np.maximum(given["encode.weight"] @ seen + given["encode.bias"], 0)
    found: F32 = np.maximum(given["tell.weight"] @ first + given["tell.bias"], 0)
    return found


def agents_in(names: Mapping[str, object]) -> int:
    """Return how many agents with weights of their own a file's arrays are of; 0: all share theirs."""
    return sum(name.endswith(".actor.bias") for name in names)


def _of_agent(arrays: Mapping[str, F32], agent: int) -> dict[str, F32]:
    first = f"{agent}."
    return {name.removeprefix(first): each for name, each in arrays.items() if name.startswith(first)}


def paper_agent_shapes(models: int, found: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the shapes that the arrays of all agents have together, by name.

    Args:
        models: that they know.
        found: shapes of a file's arrays, by which agents and their groups are known.
    """
    shapes: dict[str, Shape] = {}
    agents = agents_in(found)
    for agent in range(agents):
        actions = (found.get(f"{agent}.actor.bias") or (0,))[0]
        groups = max(actions - agents, 0)
        layers = {f"inner.{layer}": (PAPER_VERTEX if layer == 0 else VERTEX, VERTEX) for layer in range(INNER)}
        layers |= {f"between.{layer}": (TOLD, TOLD) for layer in range(BETWEEN)}
        own: dict[str, Shape] = {}
        for name, (heard, width) in layers.items():
            own |= {f"{name}.heard.weight": (width, (1 + NUMBERS) * heard), f"{name}.heard.bias": (width,)}
            own |= {f"{name}.own.weight": (width, heard + width), f"{name}.own.bias": (width,)}
        own |= {"encode.weight": (ENCODED, jobs_width(models) + groups * VERTEX), "encode.bias": (ENCODED,)}
        own |= {"tell.weight": (TOLD, ENCODED), "tell.bias": (TOLD,)}
        own |= {"hidden.weight": (HIDDEN, (1 + BETWEEN) * TOLD), "hidden.bias": (HIDDEN,)}
        own |= {"actor.weight": (actions, HIDDEN), "actor.bias": (actions,)}
        shapes |= {f"{agent}.{name}": shape for name, shape in own.items()}
    return shapes
