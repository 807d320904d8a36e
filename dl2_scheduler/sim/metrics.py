"""This module says how good a finished run was, and how sure a comparison over several job sequences is."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import vector
from dl2_scheduler.cluster.jobs import resource_names
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.sim.configurations import alone, configurations
from dl2_scheduler.sim.lanes import Floats
from dl2_scheduler.sim.record import Record
from dl2_scheduler.sim.variation import NO_VARIATION, Variation

CONFIDENCE = 0.95


@dataclass(frozen=True)
class JobStatistics:
    """These statistics describe one measure over the jobs of a run.

    Attributes:
        mean: over jobs.
        median: over jobs.
        p95: 95th percentile.
    """

    mean: float
    median: float
    p95: float


@dataclass(frozen=True)
class Summary:
    """A run in numbers.

    Attributes:
        jobs: how many.
        jct_slots: completion times, from arrival to end, in slots.
        jct_seconds: the same in seconds.
        makespan_slots: from the first arrival to the last end.
        makespan_seconds: the same in seconds.
        fairness: Jain's index of completion time / time alone at top speed: 1 where all jobs are slowed down by one
            factor, 1 / jobs where one job bears it all.
        utilisation: by resource, the part that jobs had of all nodes' over the makespan; a job that ends within a slot
            has its part until then.
        scalings: changes of a job's counts a slot that it spends in the cluster; its first start is none, a suspension
            is one.
    """

    jobs: int
    jct_slots: JobStatistics
    jct_seconds: JobStatistics
    makespan_slots: float
    makespan_seconds: float
    fairness: float
    utilisation: Mapping[str, float]
    scalings: float

    def values(self) -> dict[str, float]:
        """Return every number by its name, as in `jct_slots.mean` and `utilisation.cpu`."""
        spreads = {"jct_slots": self.jct_slots, "jct_seconds": self.jct_seconds}
        return {
            **{f"{name}.{key}": value for name, spread in spreads.items() for key, value in vars(spread).items()},
            "makespan_slots": self.makespan_slots,
            "makespan_seconds": self.makespan_seconds,
            "fairness": self.fairness,
            "scalings": self.scalings,
            **{f"utilisation.{name}": part for name, part in self.utilisation.items()},
        }


def summarise(record: Record, speeds: Speeds, variation: Variation = NO_VARIATION) -> Summary:
    """See `Summary`.

    Args:
        record: of the run.
        speeds: of the models, in samples a second.
        variation: of the jobs' speeds in the run.

    Raises:
        BadInput: there were no jobs.
    """
    if not record.jobs:
        raise BadInput("no jobs: a run without any has no completion times")
    times = record.finish - record.arrival
    makespan = float(record.finish.max() - record.arrival.min())
    work = variation.as_work(record.jobs)
    ways = [configurations(job, record.nodes, speeds, record.slot_seconds) for job in work]
    return Summary(
        len(record.jobs),
        _spread(times),
        _spread(times * record.slot_seconds),
        makespan,
        makespan * record.slot_seconds,
        jain(times / alone(work, ways, record.slot_seconds).times),
        _utilisation(record, makespan),
        _scalings(record),
    )


def jain(values: Floats) -> float:
    """Return Jain's fairness index: 1 where all are equal, 1 / n where all but one are 0."""
    return float(values.sum() ** 2 / (len(values) * (values**2).sum()))


def _spread(values: Floats) -> JobStatistics:
    return JobStatistics(float(values.mean()), float(np.median(values)), float(np.percentile(values, 95)))


def _utilisation(record: Record, makespan: float) -> dict[str, float]:
    slots = np.arange(len(record.workers))[:, None]
    service = np.clip(record.finish - slots, 0.0, 1.0)
    names = resource_names(record.nodes)
    total = np.sum([vector(node.capacity, names) for node in record.nodes], axis=0)
    used = np.zeros(len(total))
    for counts, demands in (
        (record.workers, [vector(job.worker, names) for job in record.jobs]),
        (record.servers, [vector(job.server, names) for job in record.jobs]),
    ):
        used += (service * counts).sum(axis=0) @ np.array(demands)
    return {name: float(used[at] / (total[at] * makespan)) for at, name in enumerate(names) if total[at]}


def _scalings(record: Record) -> float:
    slots = np.arange(len(record.workers))[:, None]
    present = (record.arrival <= slots) & (slots < record.finish)
    started = np.maximum.accumulate(record.workers, axis=0) > 0
    changed = (np.diff(record.workers, axis=0) != 0) | (np.diff(record.servers, axis=0) != 0)
    return float((changed & started[:-1] & present[1:]).sum() / present.sum())


@dataclass(frozen=True)
class Estimate:
    """An estimate is a mean over job sequences and says how sure it is.

    Attributes:
        mean: of the sequences.
        margin: half the 95% confidence interval, by Student's t; None: one sequence has none.
    """

    mean: float
    margin: float | None


def estimate(values: Sequence[float]) -> Estimate:
    """Return the estimate of what was measured in each sequence."""
    count = len(values)
    mean = float(np.mean(values))
    if count < 2:
        return Estimate(mean, None)
    deviations = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2))
    return Estimate(mean, deviations * float(np.std(values, ddof=1)) / math.sqrt(count))


def over_sequences(summaries: Sequence[Summary]) -> dict[str, Estimate]:
    """Return the estimate of each number of `Summary.values` over sequences.

    Args:
        summaries: of one policy, one a sequence, on one cluster.
    """
    rows = [summary.values() for summary in summaries]
    return {name: estimate([row[name] for row in rows]) for name in rows[0]}


def differences(summaries: Sequence[Summary], baseline: Sequence[Summary]) -> dict[str, Estimate]:
    """Return the estimate of each number, policy minus baseline in the same sequence.

    What all policies find hard is in neither.

    Args:
        summaries: of one policy, one a sequence.
        baseline: of another, on the same sequences in the same order.

    Raises:
        ValueError: they are not as many.
    """
    pairs = [(one.values(), other.values()) for one, other in zip(summaries, baseline, strict=True)]
    return {name: estimate([one[name] - other[name] for one, other in pairs]) for name in pairs[0][0]}
