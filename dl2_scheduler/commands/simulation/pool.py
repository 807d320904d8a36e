"""This module runs allocation policies in a pool without nodes, in which they may be asked at events (Chic)."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.commands.common import show, show_json
from dl2_scheduler.commands.simulation.compared import (
    SequenceRun,
    comparison_document,
    comparison_table,
    names_of,
    run_document,
    run_table,
)
from dl2_scheduler.commands.simulation.simulated import CostOptions, SimulationOptions, is_given, known_speeds
from dl2_scheduler.policies.pool.registry import make_pool_policy
from dl2_scheduler.sim.configurations import seconds_alone
from dl2_scheduler.sim.evaluate import telling_where
from dl2_scheduler.sim.events.cluster import completion_times
from dl2_scheduler.sim.events.worlds import PoolWorld, formula, table
from dl2_scheduler.sim.lanes import ScalingCost
from elastic_ps.system.terminal import say

USUAL_RATE = 1.8
_USUAL_SLOT = 600.0
_MOST_RATE = 1e6  # jobs an hour


class PoolType(StrEnum):
    """A `PoolType` says how fast jobs train in Chic's pool."""

    FORMULA = "formula"
    TABLE = "table"


Pool = Annotated[PoolType | None, typer.Option(help="Chic's pool, with such speeds; instead of traces.")]
Rate = Annotated[float, typer.Option(help="Jobs an hour in a pool.")]


@dataclass(frozen=True)
class PoolOptions:
    """`PoolOptions` say in which pool policies are compared: they are read where `--pool` is given."""

    pool: Pool = None
    rate: Rate = USUAL_RATE


def pool_world(pool: PoolType, speeds: Path | None) -> PoolWorld:
    """Return where jobs train.

    Args:
        pool: which.
        speeds: a table of measured ones; None: those that are shipped.

    Raises:
        BadInput: the table is wrong, or lacks a model; the formula has no table.
    """
    if pool is PoolType.FORMULA:
        if speeds is not None:
            raise BadInput("--speeds: the pool's formula has its own: leave it out, or give --pool table")
        return formula()
    return table(None if speeds is None else known_speeds(speeds))


def check_rate(rate: float) -> None:
    """Refuse a number of jobs an hour at which none, or too many, would come. Raises BadInput."""
    if not 0 < rate <= _MOST_RATE:
        raise BadInput(f"--rate is {rate:g}: give jobs an hour, above 0 and up to {_MOST_RATE:g}")


@dataclass(frozen=True)
class PoolQuestion:
    """A `PoolQuestion` is what a person asks of policies in a pool.

    Attributes:
        world: where jobs train.
        rate: jobs an hour.
        policies: names, joined by commas.
        seeds: of the sequences.
        slot: seconds between two decisions of policies that are asked at slots; None: as the paper has it.
        cost: of scaling.
        as_json: print for programs.

    Raises:
        BadInput: a policy cannot be made, or a number is wrong.
    """

    world: PoolWorld
    rate: float
    policies: str
    seeds: range
    slot: float | None
    cost: ScalingCost
    as_json: bool

    def __post_init__(self) -> None:
        check_rate(self.rate)
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise BadInput(f"--slot is {self.seconds}: give seconds above 0")
        for name in self.names:
            make_pool_policy(name, self.world.speeds)

    @property
    def names(self) -> list[str]:
        """The policies. Raises BadInput: one is there twice."""
        return names_of("--policies", self.policies)

    @property
    def seconds(self) -> float:
        """Seconds of a slot."""
        return _USUAL_SLOT if self.slot is None else self.slot

    def run(self, name: str, seed: int) -> SequenceRun:
        """Let a policy, newly made, decide about a sequence. Raises Starved.

        Args:
            name: of the policy.
            seed: of the sequence.
        """
        world, jobs = self.world, self.world.jobs(seed, self.rate)
        policy = make_pool_policy(name, world.speeds)
        return SequenceRun(jobs, completion_times(jobs, world.nodes, world.speeds, policy, self.seconds, self.cost))

    @property
    def where(self) -> dict[str, Any]:
        """The pool, for programs."""
        return {"pool": self.world.name, "rate": self.rate, "slot_seconds": self.seconds, "seeds": list(self.seeds)}


def pool_question(
    context: typer.Context,
    pooled: PoolOptions,
    simulated: SimulationOptions,
    seeds: range,
    policies: str | None,
    as_json: bool,
) -> PoolQuestion:
    """Return what was asked on the command line. Raises BadInput.

    Args:
        context: of the command; what it does not give is as in the paper: slots of 600 s, and scaling that is free.
        pooled: the pool.
        simulated: speeds, slots and costs.
        seeds: of the sequences.
        policies: names; None: none was given.
        as_json: print for programs.
    """
    if policies is None or pooled.pool is None:
        raise BadInput("--pool: give a policy too, by --policy or --policies")
    given = {
        name: getattr(simulated, name) for name in ("slot", "start_cost", "change_cost") if is_given(context, name)
    }
    cost = CostOptions(given.get("start_cost", 0.0), given.get("change_cost", 0.0), 0.0).cost
    world = pool_world(pooled.pool, simulated.speeds)
    return PoolQuestion(world, pooled.rate, policies, seeds, given.get("slot"), cost, as_json)


def evaluate_in_pool(
    asked: PoolQuestion, with_bounds: bool, progress: Callable[[int], AbstractContextManager[Callable[[str], None]]]
) -> None:
    """Compare policies on the same sequences, and print what came of it.

    Args:
        asked: what.
        with_bounds: also what no policy can beat: each job alone.
        progress: shows how many of so many runs are done.
    """
    found: dict[str, Sequence[SequenceRun]] = {}
    with progress(len(asked.names) * len(asked.seeds)) as tell:
        for name in asked.names:
            runs = []
            for seed in asked.seeds:
                with telling_where(f"seed {seed}, {name}"):
                    runs.append(asked.run(name, seed))
                tell(name)
            found[name] = runs
    least = np.array([_alone(asked.world, run) for run in next(iter(found.values()))]) if with_bounds else None
    if asked.as_json:
        show_json({**asked.where, **comparison_document("policies", "seconds", found, least)})
        return
    say(
        f"{len(asked.seeds)} sequences, {asked.world.name} pool, {asked.rate:g} jobs an hour; slots of "
        f"{asked.seconds:g} s for policies that are asked at slots; mean ± half the 95% interval"
    )
    show(comparison_table("policy", "seconds", found, {} if least is None else {"each job alone": least}))


def _alone(world: PoolWorld, run: SequenceRun) -> float:
    return float(np.mean([seconds_alone(job, world.nodes, world.speeds) for job in run.jobs]))


def simulate_in_pool(asked: PoolQuestion) -> None:
    """Let one policy decide about one sequence, and print what came of it. Raises BadInput: it is more than one."""
    if len(asked.names) > 1:
        raise BadInput("--policy: give one name, or compare several with dl2 evaluate")
    run = asked.run(asked.policies, asked.seeds[0])
    if asked.as_json:
        where = {name: value for name, value in asked.where.items() if name != "seeds"}
        show_json({**where, "seed": asked.seeds[0], "policy": asked.policies, **run_document("seconds", run)})
        return
    say(f"{asked.policies} in the {asked.world.name} pool: {len(run.jobs)} jobs, {asked.rate:g} an hour")
    show(run_table("seconds", run))
