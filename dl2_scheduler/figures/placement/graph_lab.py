"""This module makes the runs of the graph scheduler's figures: agents are learnt once, and kept in a folder."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from dl2_scheduler.cluster.hardware.profiles import PUBLISHED, Profile
from dl2_scheduler.cluster.interfaces import PlacementPolicy
from dl2_scheduler.figures.placement.contenders import FITTED, PlacementComparison, compare_placements
from dl2_scheduler.figures.placement.graph_contenders import GRAPH_PLANNERS, graph_contenders, graph_planners
from dl2_scheduler.learning.placement.graph.lessons import first_lessons
from dl2_scheduler.learning.placement.graph.paper_run import PaperAgentsSettings
from dl2_scheduler.learning.placement.graph.run import GraphSettings, learn_agents
from dl2_scheduler.learning.placement.policy_gradient import GradientSettings
from dl2_scheduler.policies.learnt.graph.agent_files import AGENTS_FILE, open_agents, save_agents
from dl2_scheduler.policies.learnt.graph.agents import GraphAgents
from dl2_scheduler.policies.learnt.graph.checked import CheckedAgents
from dl2_scheduler.policies.learnt.graph.paper_agents import PaperAgents
from dl2_scheduler.policies.placement.pods import PodSearch
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.arrivals import Pattern
from dl2_scheduler.sim.metrics import Estimate, estimate
from dl2_scheduler.sim.placed.formula.clusters import NetworkType, ServerType
from dl2_scheduler.sim.placed.formula.fitted import fitted_formula
from dl2_scheduler.sim.placed.formula.world import Formula
from dl2_scheduler.sim.placed.scenario import Scenario

AGENTS = "agents"
_CURVE_FILE = "curve.json"
Judged = Callable[[int, float], None]
"""Is told how many updates there were, and by which part of the planner's times the agents' lie over them."""
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
class StudyScale:
    """A `StudyScale` says how much those figures run that show agents while they learn.

    Attributes:
        jobs: of a sequence, of each partition.
        sequences: of jobs that policies are compared on.
        paper: of the paper's own agents. Adam's rate is not the paper's, with which so short a run shows nothing.
        rewards: of agents that learn from rewards after a planner's lessons.
    """

    jobs: int = 20
    sequences: int = 5
    paper: PaperAgentsSettings = field(default=PaperAgentsSettings(updates=60, rate=3e-4, judged_every=10))
    rewards: GraphSettings = field(
        default=GraphSettings(
            taught=2,
            updates=20,
            judged_every=5,
            selected=5,
            gradient=GradientSettings(sequences=1, episodes=6, batch=512, discount=0.95),
        )
    )


@dataclass(frozen=True)
class GraphScale:
    """A `GraphScale` says how much a figure runs.

    Attributes:
        sequences: of jobs that policies are compared on.
        learnt_in: the clusters in which agents learn.
        settings: of learning.
        planner: beside which they stand.
        study: of the figures of learning.
    """

    sequences: int = 10
    learnt_in: tuple[GraphCluster, ...] = LEARNT_IN
    settings: GraphSettings = field(default_factory=GraphSettings)
    planner: str = GRAPH_PLANNERS[1]
    study: StudyScale = field(default_factory=StudyScale)


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
        self._runs, self._tell = out / "graph-runs", tell

    def agents(self) -> GraphAgents:
        """Return the agents; they are learnt if they never were."""
        settings = self.scale.settings

        def make(judged: Judged) -> GraphAgents:
            seen, planners = lesson_clusters([each.scenario() for each in self.scale.learnt_in])
            lessons = first_lessons(seen, FixedDemand(), planners, settings.taught, settings.disturbed)
            return learn_agents(seen, FixedDemand(), planners, lessons, settings, self.seed, judged)

        found = self.learnt("agents", PUBLISHED, make)[0]
        assert isinstance(found, GraphAgents)  # which were learnt above
        return found

    def learnt(
        self, name: str, profiles: Mapping[str, Profile], make: Callable[[Judged], GraphAgents | PaperAgents]
    ) -> tuple[GraphAgents | PaperAgents, Sequence[tuple[int, float]]]:
        """Return agents, and how they were judged while they learnt; they are made if they never were.

        Args:
            name: of the run.
            profiles: of the models.
            make: makes the agents, and tells of each judgement.
        """
        run = self._runs / f"{name}-{self.seed}"
        if not (run / AGENTS_FILE).exists():
            curve: list[tuple[int, float]] = []

            def judged(updates: int, excess: float) -> None:
                curve.append((updates, excess))
                self._tell(f"{name}, {updates} updates: {excess:+.1%} over the planner")

            agents = make(judged)
            run.mkdir(parents=True, exist_ok=True)
            (run / _CURVE_FILE).write_text(json.dumps(curve) + "\n")
            save_agents(run, agents, profiles)
        known = (run / _CURVE_FILE).read_text() if (run / _CURVE_FILE).exists() else "[]"
        return open_agents(run).agents, [(int(updates), float(excess)) for updates, excess in json.loads(known)]

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
