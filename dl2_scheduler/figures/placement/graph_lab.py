"""This module makes the runs of the graph scheduler's figures: agents are learnt once, and kept in a folder."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from dl2_scheduler.cluster.interfaces import PlacementPolicy
from dl2_scheduler.figures.placement.contenders import FITTED, PlacementComparison, compare_placements
from dl2_scheduler.figures.placement.graph_contenders import GRAPH_PLANNERS, graph_contenders, graph_planners
from dl2_scheduler.learning.placement.graph_run import GraphSettings, learn_agents
from dl2_scheduler.policies.learnt.graph.agent_files import AGENTS_FILE, open_agents, save_agents
from dl2_scheduler.policies.learnt.graph.agents import GraphAgents
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.metrics import Estimate, estimate
from dl2_scheduler.sim.placed.formula import Formula
from dl2_scheduler.sim.placed.formula_fitted import fitted_formula
from dl2_scheduler.sim.placed.scenario import Scenario

AGENTS = "agents"
FIRST_TEST = 1000
"""Seed of the first sequence that policies are compared on; learners never see them."""
SHOWN = ("best fit", "load balancing", "LIF-true, lb", "LIF-true, own")
"""Rules that are drawn, each in the order of jobs that suits it best."""


@dataclass(frozen=True)
class GraphScale:
    """A `GraphScale` says how much a figure runs.

    Attributes:
        sequences: of jobs that policies are compared on.
        rack: servers of a rack where agents learn.
        oversubscriptions: of the fat-trees in which they learn.
        settings: of learning.
        planner: beside which they stand; they imitate it, too.
    """

    sequences: int = 10
    rack: int = 4
    oversubscriptions: tuple[float, ...] = (1.0, 4.0, 8.0)
    settings: GraphSettings = field(default_factory=GraphSettings)
    planner: str = GRAPH_PLANNERS[1]


class PolicyBar(NamedTuple):
    """A `PolicyBar` is a policy in a setting.

    Attributes:
        policy: its name.
        intervals: mean completion time.
        gain: percent by which the agents lie under it.
    """

    policy: str
    intervals: Estimate
    gain: Estimate


class GraphLab:
    """See the module.

    Args:
        out: folder of figures; what is learnt is kept in `graph-runs` there.
        scale: see `GraphScale`.
        seed: of learning.
        tell: told what is done next.

    Attributes:
        scale: see `GraphScale`.
        seed: of learning.
    """

    def __init__(self, out: Path, scale: GraphScale, seed: int, tell: Callable[[str], None]):
        self.scale, self.seed = scale, seed
        self._run, self._tell = out / "graph-runs" / f"agents-{seed}", tell

    def agents(self) -> GraphAgents:
        """Return the agents; they are learnt if they never were."""
        if not (self._run / AGENTS_FILE).exists():
            scale = self.scale
            worlds = [Scenario.graph(small=True, oversubscription=o, rack=scale.rack) for o in scale.oversubscriptions]
            seen = [replace(scenario, world=_fitted(scenario)) for scenario in worlds]
            planners = [graph_planners(each, {FITTED: each.world})[f"{scale.planner}, {FITTED}"] for each in seen]
            learnt = learn_agents(seen, FixedDemand(), planners, scale.settings, self.seed, self._tell)
            save_agents(self._run, learnt, worlds[0].profiles)
        return open_agents(self._run).agents

    def compared(self, scenario: Scenario) -> Sequence[PolicyBar]:
        """Return the agents, the planner and the rules in one setting, each rule in its better order."""
        policies: Mapping[str, PlacementPolicy] = {
            AGENTS: self.agents(),
            **graph_contenders(scenario, {FITTED: _fitted(scenario)}, [self.scale.planner]),
        }
        seeds = range(FIRST_TEST, FIRST_TEST + self.scale.sequences)
        found = compare_placements(scenario, policies, seeds, self._tell)
        names = [AGENTS, f"{self.scale.planner}, {FITTED}", *(found.best(rule) for rule in SHOWN)]
        return [_bar(found, name) for name in names]


def _bar(found: PlacementComparison, name: str) -> PolicyBar:
    return PolicyBar(name.split(", shortest")[0], estimate(found.means[name].tolist()), found.under(AGENTS, name))


def _fitted(scenario: Scenario) -> Formula:
    assert isinstance(scenario.world, Formula)
    return fitted_formula(scenario.world)
