"""This module keeps the graph scheduler's agents in a run's folder, and opens it.

agents.npz       the network that all agents share, or those of the paper's agents, with the names of the models
profiles.json    what the models' tasks need alone (`policies.placement.speed_model`); a folder may lack it

Models are known by their names, so that a run decides in any cluster; one of the paper's agents in its own cluster
alone. A job of another model is placed by what else is known of it, and others do not feel it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dl2_scheduler.cluster.hardware.profiles import Profile
from dl2_scheduler.policies.learnt.array_files import Shape, length_of
from dl2_scheduler.policies.learnt.graph.agent_inputs import NEAR, task_width, vertex_width
from dl2_scheduler.policies.learnt.graph.agents import BETWEEN, INNER, GraphAgents
from dl2_scheduler.policies.learnt.graph.paper_agents import PaperAgents, agents_in, paper_agent_shapes
from dl2_scheduler.policies.learnt.graph.pod_graphs import NUMBERS
from dl2_scheduler.policies.learnt.placer_files import checked_arrays, read_named, shapes_of, write_named
from dl2_scheduler.policies.placement.speed_model import SpeedModel, save_speed_model

AGENTS_FILE = "agents.npz"


@dataclass(frozen=True)
class AgentsRun:
    """An `AgentsRun` is what a run has learnt of the graph scheduler.

    Attributes:
        models: names that the agents know, in the order of their network.
        agents: that decide.
    """

    models: tuple[str, ...]
    agents: GraphAgents | PaperAgents


def save_agents(run: Path, agents: GraphAgents | PaperAgents, profiles: Mapping[str, Profile]) -> None:
    """Write what was learnt into a folder, which is made where there is none; each file whole or not at all.

    Args:
        run: the folder.
        agents: that were learnt with the models in alphabetical order.
        profiles: of the models.
    """
    models = tuple(sorted(profiles))
    save_speed_model(run, SpeedModel(models, profiles))
    write_named(run / AGENTS_FILE, models, agents.arrays)


def open_agents(run: Path) -> AgentsRun:
    """Return the agents of a run's folder.

    Raises:
        BadInput: there are none, the file is damaged, or weights are not finite.
    """
    file = run / AGENTS_FILE
    models, found = read_named(file, "agents")
    shapes = shapes_of(found)
    if agents_in(found):
        return AgentsRun(models, PaperAgents(checked_arrays(file, found, paper_agent_shapes(len(models), shapes))))
    return AgentsRun(models, GraphAgents(checked_arrays(file, found, agent_shapes(len(models), shapes))))


def agent_shapes(models: int, found: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the shapes that the network's arrays have together, by name.

    Args:
        models: that it knows.
        found: shapes of a file's arrays, by which the sizes of its layers are known.
    """
    row, task = vertex_width(models), task_width(models)
    width, hidden = length_of(found, "tell.bias"), length_of(found, "hidden.bias")
    known = (1 + BETWEEN) * width
    layers = {f"inner.{layer}": row if layer == 0 else width for layer in range(INNER)}
    layers |= {f"between.{layer}": width for layer in range(BETWEEN)}
    shapes: dict[str, Shape] = {}
    for name, heard in layers.items():
        shapes |= {f"{name}.heard.weight": (width, (1 + NUMBERS) * heard), f"{name}.heard.bias": (width,)}
        shapes |= {f"{name}.own.weight": (width, heard + width), f"{name}.own.bias": (width,)}
    shapes |= {"tell.weight": (width, row + width), "tell.bias": (width,), "group.weight": (hidden, row + width)}
    shapes |= {"near.weight": (hidden, NEAR), "other.weight": (hidden, known), "hidden.weight": (hidden, hidden)}
    shapes |= {"whole.weight": (hidden, task + known), "rest.weight": (hidden, task + known)}
    shapes |= {f"{name}.bias": (hidden,) for name in ("whole", "rest", "hidden")}
    return shapes | {
        "out.weight": (1, hidden),
        "forward.weight": (1, hidden),
        "wait.weight": (1, hidden),
        "wait.bias": (1,),
    }
