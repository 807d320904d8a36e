"""This module draws the graph scheduler's agents while they learn: figure 10, and an ablation of rewards of our own.

Figure 10 is of several agents and of one that has the whole cluster: as in the paper, and as we learn them. The one has
no graph of partitions to hear of, and nobody to forward a job to.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.interfaces import PlacementPolicy
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.figures.draw import Panel, Picture, Row, Series
from dl2_scheduler.figures.placement.contenders import SHORTEST
from dl2_scheduler.figures.placement.graph_lab import FIRST_TEST, GraphCluster, GraphLab, Judged, lesson_clusters
from dl2_scheduler.learning.placement.graph.lessons import first_lessons
from dl2_scheduler.learning.placement.graph.paper_run import learn_paper_agents
from dl2_scheduler.learning.placement.graph.rewards import RewardKind
from dl2_scheduler.learning.placement.graph.run import learn_agents
from dl2_scheduler.policies.learnt.graph.agents import GraphAgents
from dl2_scheduler.policies.learnt.graph.paper_agents import PaperAgents
from dl2_scheduler.policies.placement.balance import BestFit
from dl2_scheduler.policies.placement.greedy_fill import JobOrder
from dl2_scheduler.policies.placement.pods import PodFill
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.arrivals import Pattern
from dl2_scheduler.sim.metrics import estimate
from dl2_scheduler.sim.placed.scenario import Scenario

_PATTERNS = (Pattern.UNIFORM, Pattern.GOOGLE)
SEVERAL, ONE = "several agents", "one agent"
_OVER = "agents lie over the planner by, %"


@dataclass(frozen=True)
class UndividedScenario(Scenario):
    """An `UndividedScenario` has a cluster of one partition, to which the jobs of all partitions come."""

    @classmethod
    def of(cls, divided: Scenario) -> "UndividedScenario":
        """Return a divided cluster as one partition."""
        topology = replace(divided.topology, partition_of=np.zeros_like(divided.topology.partition_of))
        return cls(divided.machines, topology, divided.profiles, divided.world, divided.workload)

    def jobs(self, seed: int) -> list[Job]:
        """Return a sequence of jobs, the same but for their partition."""
        return [replace(job, partition=0) for job in super().jobs(seed)]


def several_or_one(lab: GraphLab) -> Picture:
    """Return figure 10: how agents get better, and mean completion times with two patterns of arrivals."""
    curves, rows = [], list[Row]()
    policies: dict[str, tuple[bool, PlacementPolicy]] = {}
    for who, alone in ((SEVERAL, False), (ONE, True)):
        for way, found in _learnt(lab, who, _scenario(lab, Pattern.UNIFORM, alone)):
            name = f"{who}, {way}"
            policies[name] = alone, found[0]
            curves.append(_curve(name, found[1]))
            rows += [_row("percent over the planner", name, updates, 100 * excess) for updates, excess in found[1]]
    policies["best fit"] = False, PodFill(BestFit())
    policies[f"best fit{SHORTEST}"] = False, PodFill(BestFit(), JobOrder.SHORTEST, skipping=True)
    bars = []
    for name, (alone, policy) in policies.items():
        each = [estimate(_means(lab, _scenario(lab, pattern, alone), policy).tolist()) for pattern in _PATTERNS]
        names = [pattern.value for pattern in _PATTERNS]
        bars.append(Series(name, names, [one.mean for one in each], [one.margin for one in each]))
        rows += [
            _row("intervals", name, pattern, one.mean, one.margin) for pattern, one in zip(names, each, strict=True)
        ]
    lines = Panel("updates", curves, y_label=_OVER, from_zero=False, width=1.4)
    return Picture([lines, Panel("", bars, y_label="mean completion time, intervals of 30 minutes", width=1.8)], rows)


def by_reward(lab: GraphLab) -> Picture:
    """Return how agents go on that a planner has taught, by what their choices are rewarded for.

    They are judged on sequences of jobs that nobody learns from and by which nothing is selected.
    """
    curves, rows, settings = [], list[Row](), lab.scale.study.rewards
    scenario = _scenario(lab, Pattern.UNIFORM, False)
    seen, planners = lesson_clusters([scenario])
    lessons = first_lessons(seen, FixedDemand(), planners, settings.taught, settings.disturbed)
    for reward in RewardKind:

        def make(judged: Judged, reward: RewardKind = reward) -> GraphAgents:
            rewarded = replace(settings, reward=reward)
            return learn_agents(seen, FixedDemand(), planners, lessons, rewarded, lab.seed, judged)

        _, curve = lab.learnt(f"reward-{reward.name.lower()}", scenario.profiles, make)
        curves.append(_curve(reward.value, curve))
        rows += [_row("percent over the planner", reward.value, updates, 100 * excess) for updates, excess in curve]
    return Picture([Panel("updates", curves, y_label=_OVER, from_zero=False, width=1.6)], rows)


def _learnt(
    lab: GraphLab, who: str, scenario: Scenario
) -> Iterator[tuple[str, tuple[GraphAgents | PaperAgents, Sequence[tuple[int, float]]]]]:
    """Yield agents of a cluster by the way in which they learn, each with how it was judged meanwhile."""
    study, run = lab.scale.study, who.replace(" ", "-")
    seen, planners = lesson_clusters([scenario])

    def as_paper(judged: Judged) -> PaperAgents:
        return learn_paper_agents(seen[0], FixedDemand(), planners[0], study.paper, lab.seed, judged)

    def taught(judged: Judged) -> GraphAgents:
        settings = study.rewards
        lessons = first_lessons(seen, FixedDemand(), planners, settings.taught, settings.disturbed)
        return learn_agents(seen, FixedDemand(), planners, lessons, settings, lab.seed, judged)

    yield "as in the paper", lab.learnt(f"paper-{run}", scenario.profiles, as_paper)
    yield "taught", lab.learnt(f"taught-{run}", scenario.profiles, taught)


def _scenario(lab: GraphLab, pattern: Pattern, alone: bool) -> Scenario:
    found = GraphCluster().scenario(pattern=pattern)
    found = replace(found, workload=replace(found.workload, jobs=lab.scale.study.jobs))
    return UndividedScenario.of(found) if alone else found


def _means(lab: GraphLab, scenario: Scenario, policy: PlacementPolicy) -> Floats:
    """Return a policy's mean completion times, (sequences,)."""
    sequences = [scenario.jobs(FIRST_TEST + number) for number in range(lab.scale.study.sequences)]
    return np.array([scenario.completion_times(FixedDemand(), policy, jobs).mean() for jobs in sequences])


def _curve(name: str, curve: Sequence[tuple[int, float]]) -> Series:
    last = dict(curve)  # where it was judged twice at one place, as before and after lessons
    return Series(name, list(last), [100 * excess for excess in last.values()], [None] * len(last))


def _row(what: str, agents: str, where: int | str, value: float, margin: float | None = None) -> Row:
    return {"what": what, "agents": agents, "where": where, "value": value, "margin": margin}
