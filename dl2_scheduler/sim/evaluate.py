"""This module compares policies on the same job sequences."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dl2_scheduler.cluster.errors import BadInput, Starved
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.sim.bound import hard_bound, lp_bound
from dl2_scheduler.sim.lanes import NO_COST, ScalingCost
from dl2_scheduler.sim.metrics import Estimate, Summary, differences, estimate, over_sequences, summarise
from dl2_scheduler.sim.record import record
from dl2_scheduler.sim.simulator import SimulatedCluster, check_jobs
from dl2_scheduler.sim.variation import NO_VARIATION, Variation

Sequences = Mapping[str, Sequence[Job]]
"""Jobs of each sequence, by its name."""


@dataclass(frozen=True)
class Setting:
    """The setting is where all sequences run.

    Attributes:
        nodes: machines.
        speeds: of the models, in samples a second.
        slot_seconds: length of a slot.
        cost: of scaling.
        variation: of speeds in the first sequence; others have other factors (`Variation.of_sequence`).
    """

    nodes: Sequence[Node]
    speeds: Speeds
    slot_seconds: float = 1200.0
    cost: ScalingCost = NO_COST
    variation: Variation = NO_VARIATION


@dataclass(frozen=True)
class Contender:
    """A policy to evaluate.

    Attributes:
        name: for people.
        make: a new one for each sequence, which has learnt nothing from the others.
        rule: by which its tasks find their node.
    """

    name: str
    make: Callable[[], AllocationPolicy]
    rule: NodeRule = NodeRule.SPREAD


@dataclass(frozen=True)
class Result:
    """A result says how one policy did.

    Attributes:
        name: of the policy.
        runs: by sequence.
        numbers: of `Summary.values`, over the sequences.
        differences: the same, minus the first policy's in the same sequence.
    """

    name: str
    runs: Mapping[str, Summary]
    numbers: Mapping[str, Estimate]
    differences: Mapping[str, Estimate]


@dataclass(frozen=True)
class Bounds:
    """Mean completion times that no scheduler can beat, in slots, over the sequences.

    Attributes:
        hard: every job alone.
        lp: of the linear program.
    """

    hard: Estimate
    lp: Estimate


def _ignore(done: str) -> None:
    pass


@contextmanager
def telling_where(where: str) -> Iterator[None]:
    """Say in the errors of this context where it was: in which sequence, under which policy."""
    try:
        yield
    except (BadInput, Starved) as error:
        raise type(error)(f"{where}: {error}") from error


def _check(sequences: Sequences, setting: Setting) -> None:
    """Refuse what cannot run, before anything does. Raises BadInput, with the sequence."""
    for name, jobs in sequences.items():
        with telling_where(name):
            check_jobs(jobs, setting.nodes, setting.speeds)


def _varied(sequences: Sequences, setting: Setting) -> Iterator[tuple[str, Sequence[Job], Variation]]:
    for number, (name, jobs) in enumerate(sequences.items()):
        yield name, jobs, setting.variation.of_sequence(number)


def compare(
    contenders: Sequence[Contender], sequences: Sequences, setting: Setting, tell: Callable[[str], None] = _ignore
) -> list[Result]:
    """Run every policy on every sequence.

    Args:
        contenders: the first is the baseline of the differences.
        sequences: jobs.
        setting: where they run.
        tell: called with the policy's name after each run.

    Raises:
        BadInput: a sequence cannot run there, and which.
        Starved: a policy starves jobs, and which.
    """
    _check(sequences, setting)
    results: list[Result] = []
    for contender in contenders:
        runs = {}
        for name, jobs, variation in _varied(sequences, setting):
            where = setting.nodes, setting.speeds, setting.slot_seconds, setting.cost
            cluster = SimulatedCluster(jobs, *where, variation)
            with telling_where(f"{name}, {contender.name}"):
                recorded = record(cluster, contender.make(), contender.rule)
            runs[name] = summarise(recorded, setting.speeds, variation)
            tell(contender.name)
        own = list(runs.values())
        baseline = list(results[0].runs.values()) if results else own
        results.append(Result(contender.name, runs, over_sequences(own), differences(own, baseline)))
    return results


def bounds(sequences: Sequences, setting: Setting, tell: Callable[[str], None] = _ignore) -> Bounds:
    """Return the bounds of the same sequences; scaling costs nothing there.

    Args:
        sequences: see `compare`.
        setting: see `compare`.
        tell: told when the bounds are found.

    Raises:
        BadInput: see `compare`.
    """
    _check(sequences, setting)
    hard, lp = [], []
    for _, jobs, variation in _varied(sequences, setting):
        work = variation.as_work(jobs)
        hard.append(hard_bound(work, setting.nodes, setting.speeds, setting.slot_seconds))
        lp.append(lp_bound(work, setting.nodes, setting.speeds, setting.slot_seconds))
        tell("bounds")
    return Bounds(estimate(hard), estimate(lp))
