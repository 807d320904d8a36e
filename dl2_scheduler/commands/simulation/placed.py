"""This module runs placement policies for `dl2 simulate` and `evaluate`, where jobs' speeds depend on their places."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.machines import Floats, named
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.jobs import check_fits
from dl2_scheduler.commands.common import show, show_json
from dl2_scheduler.commands.simulation.compared import (
    SequenceRun,
    comparison_document,
    comparison_table,
    names_of,
    run_document,
    run_table,
)
from dl2_scheduler.commands.simulation.look_ahead import make_simulated_placement
from dl2_scheduler.commands.simulation.world_options import WorldOptions
from dl2_scheduler.policies.registry import make_live_policy
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.policies.user_policy import SimulatedPlacement
from dl2_scheduler.sim.evaluate import telling_where
from dl2_scheduler.sim.placed.scenario import Scenario
from elastic_ps.system.terminal import say


def allocation_of(policy: str | None) -> AllocationPolicy:
    """Return what says how many tasks jobs get. Raises BadInput.

    Args:
        policy: name; None: as many as their owners ask for, as in the papers.
    """
    return FixedDemand() if policy is None else make_live_policy(policy)


def run_placement(scenario: Scenario, name: str, policy: str | None, seed: int) -> SequenceRun:
    """Let a placement policy, newly made, place the jobs of a sequence.

    Args:
        scenario: where.
        name: of the placement policy.
        policy: see `allocation_of`.
        seed: of the sequence.

    Raises:
        BadInput: a policy cannot be made, or its answer be used.
        Starved: a policy starves jobs.
    """
    jobs = scenario.jobs(seed)
    placement = SimulatedPlacement(name, make_simulated_placement(name))
    return SequenceRun(jobs, scenario.completion_times(allocation_of(policy), placement, jobs))


def check_scenario(scenario: Scenario, names: Sequence[str], policy: str | None, seed: int) -> None:
    """Refuse names and jobs before anything runs.

    Args:
        scenario: where they are to run.
        names: of the placement policies.
        policy: see `allocation_of`.
        seed: of the first sequence.

    Raises:
        BadInput: a policy cannot be made, or a job fits no node.
    """
    for name in names:
        make_simulated_placement(name)
    allocation_of(policy)
    nodes = named(scenario.machines)
    for job in scenario.jobs(seed):
        check_fits(job, nodes)


def compare_in_world(
    scenario: Scenario, names: Sequence[str], policy: str | None, seeds: Sequence[int], tell: Callable[[str], None]
) -> Mapping[str, Sequence[SequenceRun]]:
    """Let each placement policy place the same sequences.

    Args:
        scenario: where.
        names: of the placement policies.
        policy: see `allocation_of`.
        seeds: of the sequences.
        tell: called with the policy's name after each run.
    """
    found: dict[str, list[SequenceRun]] = {}
    for name in names:
        for seed in seeds:
            with telling_where(f"seed {seed}, {name}"):
                found.setdefault(name, []).append(run_placement(scenario, name, policy, seed))
            tell(name)
    return found


@dataclass(frozen=True)
class PlacedQuestion:
    """A `PlacedQuestion` is what a person asks of placement policies.

    Attributes:
        options: of the world.
        cluster: its nodes, as `--cluster` says; None: the scenario's.
        placements: names, joined by commas.
        policy: see `allocation_of`.
        as_json: print for programs.
    """

    options: WorldOptions
    cluster: str | None
    placements: str
    policy: str | None
    as_json: bool

    def scenario(self) -> Scenario:
        """Return the scenario, in which all that is asked can run. Raises BadInput."""
        found = self.options.setting(self.cluster)
        check_scenario(found, self.names, self.policy, self.options.seed)
        return found

    @property
    def names(self) -> list[str]:
        """The placement policies. Raises BadInput: one is there twice."""
        return names_of("--placement", self.placements)

    @property
    def where(self) -> dict[str, Any]:
        """The world, for programs."""
        found = {name: value for name, value in asdict(self.options).items() if name not in ("sequences", "seed")}
        found["table"] = None if self.options.table is None else str(self.options.table)
        return {**found, "cluster": self.cluster, "policy": self.policy, "seeds": list(self.options.seeds)}


def evaluate_in_world(
    asked: PlacedQuestion, with_bounds: bool, progress: Callable[[int], AbstractContextManager[Callable[[str], None]]]
) -> None:
    """Compare placement policies on the same sequences, and print what came of it.

    Args:
        asked: what.
        with_bounds: also what no policy can beat.
        progress: shows how many of so many runs are done.
    """
    scenario, names, seeds = asked.scenario(), asked.names, asked.options.seeds
    with progress(len(names) * len(seeds) + (len(seeds) if with_bounds else 0)) as tell:
        found = compare_in_world(scenario, names, asked.policy, seeds, tell)
        least = _bounds(scenario, seeds, tell) if with_bounds else None
    if asked.as_json:
        show_json({**asked.where, **comparison_document("placements", "intervals", found, least)})
        return
    minutes = scenario.workload.interval_seconds / 60
    say(
        f"{len(seeds)} sequences, {len(scenario.machines.nodes)} nodes, {asked.options.world} world, intervals of "
        f"{minutes:g} min; mean ± half the 95% interval"
    )
    show(comparison_table("placement", "intervals", found, _named(least)))


def _named(bounds: Floats | None) -> dict[str, Floats]:
    return {} if bounds is None else dict(zip(("each job alone", "LP bound"), bounds.T, strict=True))


def _bounds(scenario: Scenario, seeds: Sequence[int], tell: Callable[[str], None]) -> Floats:
    found = []
    for seed in seeds:
        found.append(scenario.bounds(scenario.jobs(seed)))
        tell("bounds")
    return np.array(found)


def simulate_in_world(asked: PlacedQuestion) -> None:
    """Let one placement policy place one sequence, and print what came of it. Raises BadInput: it is more than one."""
    if len(asked.names) > 1:
        raise BadInput("--placement: give one name, or compare several with dl2 evaluate")
    scenario = asked.scenario()
    run = run_placement(scenario, asked.placements, asked.policy, asked.options.seed)
    if asked.as_json:
        show_json({**asked.where, "placement": asked.placements, **run_document("intervals", run)})
        return
    say(
        f"{asked.placements} in the {asked.options.world} world: {len(run.jobs)} jobs, "
        f"{len(scenario.machines.nodes)} nodes, intervals of {scenario.workload.interval_seconds / 60:g} min"
    )
    show(run_table("intervals", run))
