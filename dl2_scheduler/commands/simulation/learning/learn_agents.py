"""This module is `dl2 learn-agents`: it makes the graph scheduler's agents, in simulated networks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.table import Table

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.interfaces import PlacementPolicy
from dl2_scheduler.commands.common import show
from dl2_scheduler.commands.progress import new_progress
from dl2_scheduler.commands.simulation.compared import SequenceRun, comparison_table
from dl2_scheduler.commands.simulation.learning.learn_placement import refuse_other_speeds
from dl2_scheduler.commands.simulation.learning.learners import LearningWay
from dl2_scheduler.policies.learnt.graph.agent_files import AGENTS_FILE, save_agents
from dl2_scheduler.policies.learnt.graph.agents import GraphAgents
from dl2_scheduler.policies.learnt.graph.paper_agents import PaperAgents
from dl2_scheduler.policies.placement.pods import PodSearch
from dl2_scheduler.policies.placement.registry import AGENTS, make_placement
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.arrivals import Pattern
from dl2_scheduler.sim.placed.formula.clusters import NetworkType, ServerType
from dl2_scheduler.sim.placed.scenario import Scenario
from elastic_ps.system.option_groups import grouped
from elastic_ps.system.terminal import say

if TYPE_CHECKING:
    from dl2_scheduler.learning.bootstrap import Tell
    from dl2_scheduler.learning.placement.graph.paper_run import PaperAgentsSettings
    from dl2_scheduler.learning.placement.graph.run import GraphSettings

_COMPARED = range(3)
"""Seeds of the sequences on which the agents are compared in the end: none of those that they saw while they learnt."""
_RULE = "load-balance"
_PLANNER = "patient pod search"
_MOST_LOAD = 1000.0


@dataclass(frozen=True)
class TaughtNetworks:
    """These `TaughtNetworks` say in which clusters agents learn, and which jobs come there."""

    scenario: Annotated[
        NetworkType | None,
        typer.Option(help="A small network; left out: five, so that they decide well in many.", show_default=False),
    ] = None
    server_type: Annotated[ServerType, typer.Option(help="Of the servers, as the paper numbers them.")] = (
        ServerType.DEFAULT
    )
    oversubscription: Annotated[
        float, typer.Option(min=1, max=1000, help="Of the network's links above the servers.")
    ] = 1.0
    load: Annotated[float, typer.Option(max=_MOST_LOAD, help="Jobs an interval, of 100 servers.")] = 15.0
    pattern: Annotated[Pattern, typer.Option(help="Of arrivals.")] = Pattern.UNIFORM
    jobs: Annotated[int, typer.Option(min=1, max=10_000, help="Of a sequence, of each partition.")] = 60

    def scenarios(self) -> dict[str, Scenario]:
        """Return the clusters with their jobs, by what people call them. Raises BadInput: options contradict."""
        from dl2_scheduler.figures.placement.graph_lab import LEARNT_IN, GraphCluster  # torch takes seconds

        if self.scenario is None and (self.server_type is not ServerType.DEFAULT or self.oversubscription != 1.0):
            raise BadInput("--server-type, --oversubscription: of one network: give --scenario fat-tree, vl2 or bcube")
        one = None if self.scenario is None else GraphCluster(self.scenario, self.server_type, self.oversubscription)
        clusters = LEARNT_IN if one is None else (one,)
        found = {_name(each): each.scenario(self.load, self.pattern) for each in clusters}
        return {name: replace(each, workload=replace(each.workload, jobs=self.jobs)) for name, each in found.items()}


def _name(cluster: tuple[NetworkType, ServerType, float]) -> str:
    network, servers, oversubscription = cluster
    more = [] if servers is ServerType.DEFAULT else [f"servers {servers}"]
    more += [] if oversubscription == 1.0 else [f"oversubscribed {oversubscription:g} times"]
    return ", ".join([network.value, *more])


@grouped
def learn_graph_agents(
    out: Annotated[Path, typer.Option(metavar="RUN", help="Folder of the run, for --placement agents:RUN.")],
    *,
    taught: TaughtNetworks,
    learner: Annotated[
        LearningWay, typer.Option(help="By a planner's lessons first; from nothing, mended; as in the paper.")
    ] = LearningWay.TAUGHT,
    sequences: Annotated[
        int, typer.Option(min=1, max=10_000, help="Of each network, to imitate; two others select.")
    ] = 2,
    updates: Annotated[
        int | None,
        typer.Option(min=0, max=1_000_000, help="From rewards; left out: 5, mended 60, paper 200.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=1_000_000, help="Of everything but the jobs to imitate.")] = 0,
) -> None:
    """Learn to place jobs in networks: agents of partitions, as in the graph scheduler's paper (TNSM 2021).

    You can stop it at any time: RUN has the best agents so far.
    """
    # torch takes seconds to import, which no other command should
    from dl2_scheduler.learning.placement.graph.paper_run import PaperAgentsSettings
    from dl2_scheduler.learning.placement.graph.run import MENDED, TAUGHT
    from dl2_scheduler.learning.run_folder import RunFolder

    if learner is LearningWay.PAPER and taught.scenario is None:
        raise BadInput("--learner paper: its agents belong to one network: give --scenario fat-tree, vl2 or bcube too")
    clusters = taught.scenarios()
    settings: GraphSettings | PaperAgentsSettings = PaperAgentsSettings()
    if learner is not LearningWay.PAPER:
        settings = replace(TAUGHT, taught=sequences) if learner is LearningWay.TAUGHT else MENDED
    settings = settings if updates is None else replace(settings, updates=updates)
    folder = RunFolder(out)
    with folder.held():
        folder.refuse_another()
        refuse_other_speeds(out, None)
        told = {**vars(taught), "learner": learner, "sequences": sequences, "updates": settings.updates, "seed": seed}
        folder.write_settings(told)
        with new_progress() as progress, folder.best_so_far(AGENTS_FILE, f"{AGENTS}:{out}"):
            tables = _learn(out, clusters, settings, seed, progress.tell)
    for name, table in tables.items():
        say(f"{name}:")
        show(table)
    say(f"Of {len(_COMPARED)} sequences that they did not learn from. Use them as --placement {AGENTS}:{out}")


def _learn(
    out: Path,
    clusters: Mapping[str, Scenario],
    settings: "GraphSettings | PaperAgentsSettings",
    seed: int,
    tell: "Tell",
) -> dict[str, Table]:
    """Learn in clusters with fitted speeds, keep the best in the folder, and compare them in the end."""
    from dl2_scheduler.figures.placement.graph_lab import lesson_clusters
    from dl2_scheduler.learning.placement.graph.paper_run import PaperAgentsSettings, learn_paper_agents

    what = "speeds are fitted to 480 samples of each network"
    tell(what, 0, 1, {})
    seen, planners = lesson_clusters(list(clusters.values()))
    tell(what, 1, 1, {})

    def judged(done: int, excess: float) -> None:
        tell("learning", done, settings.updates, {"percent over the planner": 100 * excess})

    def keep(best: GraphAgents | PaperAgents) -> None:
        save_agents(out, best, seen[0].profiles)

    if isinstance(settings, PaperAgentsSettings):
        learn_paper_agents(seen[0], FixedDemand(), planners[0], settings, seed, judged, keep)
    else:
        _learn_shared(seen, planners, settings, seed, _Told(tell, judged, keep))
    return _compared(out, clusters, planners, tell)


class _Told(NamedTuple):
    """These are told how learning goes.

    Attributes:
        tell: what is done.
        judged: see `learn_agents`.
        keep: see there.
    """

    tell: "Tell"
    judged: Callable[[int, float], None]
    keep: Callable[[GraphAgents], None]


def _learn_shared(
    seen: Sequence[Scenario], planners: Sequence[PodSearch], settings: "GraphSettings", seed: int, told: _Told
) -> None:
    """Watch planners if there are to be lessons, and learn weights that all agents share.

    Args:
        seen: clusters with fitted speeds.
        planners: of each.
        settings: of the run.
        seed: of everything but the lessons.
        told: how it goes.
    """
    from dl2_scheduler.learning.placement.graph.lessons import first_lessons
    from dl2_scheduler.learning.placement.graph.run import learn_agents

    def watched(done: int) -> None:
        told.tell("planners are watched", done, len(seen), {})

    lessons = []
    if settings.taught:
        watched(0)
        lessons = first_lessons(seen, FixedDemand(), planners, settings.taught, settings.disturbed, watched)
        told.tell("planners are imitated", 0, 1, {})
    learn_agents(seen, FixedDemand(), planners, lessons, settings, seed, told.judged, told.keep)


def _compared(
    out: Path, clusters: Mapping[str, Scenario], planners: Sequence[PodSearch], tell: "Tell"
) -> dict[str, Table]:
    """Return how the run's agents do in each network with its true speeds, beside a rule and the planner."""
    found, names = {}, (_RULE, f"{AGENTS}:{out}")
    for number, (network, scenario) in enumerate(clusters.items()):
        tell("policies are compared", number, len(clusters), {})
        runs = {name: _runs(scenario, make_placement(name)) for name in names}
        runs[_PLANNER] = _runs(scenario, planners[number])
        found[network] = comparison_table("placement", "intervals", runs, {})
    tell("policies are compared", len(clusters), len(clusters), {})
    return found


def _runs(scenario: Scenario, policy: PlacementPolicy) -> Sequence[SequenceRun]:
    """Return what a policy makes of the last comparison's sequences, in the network with its true speeds."""
    sequences = [scenario.jobs(seed) for seed in _COMPARED]
    return [SequenceRun(jobs, scenario.completion_times(FixedDemand(), policy, jobs)) for jobs in sequences]
