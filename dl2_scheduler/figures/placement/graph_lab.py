"""This module makes the runs of the graph scheduler's figures: agents are learnt once, and kept in a folder."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from dl2_scheduler.cluster.interfaces import PlacementPolicy
from dl2_scheduler.figures.placement.contenders import FITTED, PlacementComparison, compare_placements
from dl2_scheduler.figures.placement.graph_contenders import GRAPH_PLANNERS, graph_contenders, graph_planners
from dl2_scheduler.learning.placement.graph.lessons import first_lessons
from dl2_scheduler.learning.placement.graph.run import GraphSettings, learn_agents
from dl2_scheduler.policies.learnt.graph.agent_files import AGENTS_FILE, open_agents, save_agents
from dl2_scheduler.policies.learnt.graph.agents import GraphAgents
from dl2_scheduler.policies.learnt.graph.checked import CheckedAgents
from dl2_scheduler.policies.placement.pods import PodSearch
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.arrivals import Pattern
from dl2_scheduler.sim.metrics import Estimate, estimate
from dl2_scheduler.sim.placed.formula import Formula
from dl2_scheduler.sim.placed.formula_fitted import fitted_formula
from dl2_scheduler.sim.placed.graph_clusters import NetworkType, ServerType
from dl2_scheduler.sim.placed.scenario import Scenario

AGENTS = "agents"
TEACHER = GRAPH_PLANNERS[2]
"""Whom agents imitate."""
FIRST_TEST = 1000
"""Seed of the first sequence that policies are compared on; learners never see them."""
SHOWN = ("best fit", "load balancing", "LIF-true, lb", "LIF-true, own")
"""Rules that are drawn, each in the order of jobs that suits it best."""


class GraphCluster(NamedTuple):
    """A `GraphCluster` is a small cluster of the graph scheduler's.

    Attributes:
        network: of it.
        servers: of it.
        oversubscription: of its links above the racks.
    """

    network: NetworkType = NetworkType.FAT_TREE
    servers: ServerType = ServerType.DEFAULT
    oversubscription: float = 1.0

    def scenario(self, mean: float = 15.0, pattern: str = Pattern.UNIFORM) -> Scenario:
        """Return it with its jobs.

        Args:
            mean: see `Scenario.graph`.
            pattern: see `Workload`.
        """
        where = self.network, self.servers
        return Scenario.graph(*where, small=True, oversubscription=self.oversubscription, mean=mean, pattern=pattern)


LEARNT_IN = (
    GraphCluster(),
    GraphCluster(oversubscription=8.0),
    GraphCluster(NetworkType.VL2),
    GraphCluster(NetworkType.BCUBE),
    GraphCluster(servers=ServerType.UNEVEN),
)
"""Where agents learn: they are judged in others, too."""


def lesson_clusters(scenarios: Sequence[Scenario]) -> tuple[list[Scenario], list[PodSearch]]:
    """Return clusters as a fitted model shows them, and the patient planner of each, which knows no more."""
    seen = [replace(each, world=_fitted(each)) for each in scenarios]
    planners = [graph_planners(each, {FITTED: each.world}, [TEACHER])[f"{TEACHER}, {FITTED}"] for each in seen]
    return seen, planners


def checked(agents: GraphAgents, scenario: Scenario) -> CheckedAgents:
    """Return agents of whose proposals a model picks that is fitted to a scenario's world."""
    planners = graph_planners(scenario, {FITTED: _fitted(scenario)}, [TEACHER])
    return CheckedAgents(agents, planners[f"{TEACHER}, {FITTED}"])


@dataclass(frozen=True)
class GraphScale:
    """A `GraphScale` says how much a figure runs.

    Attributes:
        sequences: of jobs that policies are compared on.
        learnt_in: the clusters in which agents learn.
        settings: of learning.
        planner: beside which they stand.
    """

    sequences: int = 10
    learnt_in: tuple[GraphCluster, ...] = LEARNT_IN
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
            settings = self.scale.settings
            seen, planners = lesson_clusters([each.scenario() for each in self.scale.learnt_in])
            lessons = first_lessons(seen, FixedDemand(), planners, settings.taught, settings.disturbed)
            learnt = learn_agents(seen, FixedDemand(), planners, lessons, settings, self.seed, self._judged)
            save_agents(self._run, learnt, seen[0].profiles)
        found = open_agents(self._run).agents
        assert isinstance(found, GraphAgents)  # which were learnt above
        return found

    def _judged(self, updates: int, excess: float) -> None:
        self._tell(f"agents, {updates} updates: {excess:+.1%} over the planner")

    def compared(self, scenario: Scenario) -> Sequence[PolicyBar]:
        """Return the agents, the planner and the rules in one setting, each rule in its better order."""
        policies: Mapping[str, PlacementPolicy] = {
            AGENTS: checked(self.agents(), scenario),
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
