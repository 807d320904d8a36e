"""This module runs placement policies for `dl2 simulate` and `evaluate`, where jobs' speeds depend on their places."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.table import Table

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.machines import Floats, named
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.jobs import Job, check_fits
from dl2_scheduler.commands.common import new_table, show, show_json
from dl2_scheduler.commands.simulation.world_options import WorldOptions
from dl2_scheduler.policies.placement.registry import make_placement
from dl2_scheduler.policies.registry import make_live_policy
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.policies.user_policy import SimulatedPlacement
from dl2_scheduler.sim.metrics import Estimate, estimate
from dl2_scheduler.sim.placed.scenario import Scenario
from elastic_ps.system.terminal import say


def allocation_of(policy: str | None) -> AllocationPolicy:
    """Return what says how many tasks jobs get. Raises BadInput.

    Args:
        policy: name; None: as many as their owners ask for, as in the papers.
    """
    return FixedDemand() if policy is None else make_live_policy(policy)


@dataclass(frozen=True)
class PlacementRun:
    """A `PlacementRun` is what one placement policy made of one sequence.

    Attributes:
        jobs: by arrival.
        times: intervals from each job's arrival to its end, (jobs,).
    """

    jobs: Sequence[Job]
    times: Floats


def run_placement(scenario: Scenario, name: str, policy: str | None, seed: int) -> PlacementRun:
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
    placement = SimulatedPlacement(name, make_placement(name))
    return PlacementRun(jobs, scenario.completion_times(allocation_of(policy), placement, jobs))


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
        make_placement(name)
    allocation_of(policy)
    nodes = named(scenario.machines)
    for job in scenario.jobs(seed):
        check_fits(job, nodes)


def names_of(placement: str) -> list[str]:
    """Return the names of a list that is joined by commas. Raises BadInput: one is there twice."""
    names = [name.strip() for name in placement.split(",")]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"--placement: {name} again: give each placement once")
    return names


def compare_in_world(
    scenario: Scenario, names: Sequence[str], policy: str | None, seeds: Sequence[int], tell: Callable[[str], None]
) -> Mapping[str, Sequence[PlacementRun]]:
    """Let each placement policy place the same sequences.

    Args:
        scenario: where.
        names: of the placement policies.
        policy: see `allocation_of`.
        seeds: of the sequences.
        tell: called with the policy's name after each run.
    """
    found: dict[str, list[PlacementRun]] = {}
    for name in names:
        for seed in seeds:
            found.setdefault(name, []).append(run_placement(scenario, name, policy, seed))
            tell(name)
    return found


def comparison_table(found: Mapping[str, Sequence[PlacementRun]], bounds: Floats | None) -> Table:
    """Return mean completion times and their paired differences from the first policy's.

    Args:
        found: runs of each policy on the same sequences.
        bounds: of each sequence: of jobs alone, and of the linear program, (sequences, 2); None: not asked for.
    """
    first = _means(next(iter(found.values())))
    heads = ("JCT, intervals", f"vs {next(iter(found))}", "in percent", "median", "p95")
    table = new_table(placement=False, **dict.fromkeys(heads, True))
    for number, (name, runs) in enumerate(found.items()):
        own = _means(runs)
        median, p95 = (float(np.mean([np.quantile(run.times, part) for run in runs])) for part in (0.5, 0.95))
        paired = ["", ""]
        if number:
            paired = [_text(estimate((own - first).tolist()), "+.2f"), _text(_percent(own, first), "+.1f")]
        table.add_row(name, _text(estimate(own.tolist())), *paired, f"{median:.2f}", f"{p95:.2f}")
    for name, bound in zip(("each job alone", "LP bound"), () if bounds is None else bounds.T, strict=False):
        table.add_row(name, _text(estimate(bound.tolist())))
    return table


def comparison_document(found: Mapping[str, Sequence[PlacementRun]], bounds: Floats | None) -> dict[str, Any]:
    """Return the same for programs; see `comparison_table`."""
    first = _means(next(iter(found.values())))
    policies = [
        {
            "name": name,
            "jct_intervals": asdict(estimate(_means(runs).tolist())),
            "difference": asdict(estimate((_means(runs) - first).tolist())),
            "percent": asdict(_percent(_means(runs), first)),
            "sequences": _means(runs).tolist(),
        }
        for name, runs in found.items()
    ]
    return {"placements": policies, "bounds": None if bounds is None else bounds.tolist()}


def run_document(run: PlacementRun) -> dict[str, Any]:
    """Return what became of each job, for programs."""
    jobs = [
        {
            "id": job.id,
            "model": job.model,
            "workers": job.max_workers,
            "servers": job.max_servers,
            "arrival_seconds": job.arrival,
            "jct_intervals": float(time),
        }
        for job, time in zip(run.jobs, run.times, strict=True)
    ]
    return {"jct_intervals": float(run.times.mean()), "jobs": jobs}


def _means(runs: Sequence[PlacementRun]) -> Floats:
    return np.array([run.times.mean() for run in runs])


def _percent(own: Floats, first: Floats) -> Estimate:
    return estimate((100 * (own / first - 1)).tolist())


def _text(value: Estimate, form: str = ".2f") -> str:
    return f"{value.mean:{form}}" + ("" if value.margin is None else f" ± {value.margin:{form.lstrip('+')}}")


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
        check_scenario(found, names_of(self.placements), self.policy, self.options.seed)
        return found

    @property
    def where(self) -> dict[str, Any]:
        """The world, for programs."""
        found = {name: value for name, value in asdict(self.options).items() if name not in ("sequences", "seed")}
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
    scenario, names, seeds = asked.scenario(), names_of(asked.placements), asked.options.seeds
    with progress(len(names) * len(seeds) + (len(seeds) if with_bounds else 0)) as tell:
        found = compare_in_world(scenario, names, asked.policy, seeds, tell)
        least = _bounds(scenario, seeds, tell) if with_bounds else None
    if asked.as_json:
        show_json({**asked.where, **comparison_document(found, least)})
        return
    minutes = scenario.workload.interval_seconds / 60
    say(
        f"{len(seeds)} sequences, {len(scenario.machines.nodes)} nodes, {asked.options.world} world, intervals of "
        f"{minutes:g} min; mean ± half the 95% interval"
    )
    show(comparison_table(found, least))


def _bounds(scenario: Scenario, seeds: Sequence[int], tell: Callable[[str], None]) -> Floats:
    found = []
    for seed in seeds:
        found.append(scenario.bounds(scenario.jobs(seed)))
        tell("bounds")
    return np.array(found)


def simulate_in_world(asked: PlacedQuestion) -> None:
    """Let one placement policy place one sequence, and print what came of it. Raises BadInput: it is more than one."""
    if len(names_of(asked.placements)) > 1:
        raise BadInput("--placement: give one name, or compare several with dl2 evaluate")
    scenario = asked.scenario()
    run = run_placement(scenario, asked.placements, asked.policy, asked.options.seed)
    if asked.as_json:
        show_json({**asked.where, "placement": asked.placements, **run_document(run)})
        return
    say(
        f"{asked.placements} in the {asked.options.world} world: {len(run.jobs)} jobs, "
        f"{len(scenario.machines.nodes)} nodes, intervals of {scenario.workload.interval_seconds / 60:g} min"
    )
    table = new_table(of_jobs=False, mean=True, median=True, p95=True)
    cells = float(run.times.mean()), *np.quantile(run.times, (0.5, 0.95)).tolist()
    table.add_row("completion time, intervals", *(f"{cell:.2f}" for cell in cells))
    show(table)
