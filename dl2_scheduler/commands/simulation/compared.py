"""This module shows what policies made of the same sequences of jobs: mean completion times, and paired differences."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.table import Table

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.machines import Floats
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.commands.common import new_table
from dl2_scheduler.sim.metrics import Estimate, estimate


@dataclass(frozen=True)
class SequenceRun:
    """A `SequenceRun` is what one policy made of one sequence.

    Attributes:
        jobs: by arrival.
        times: from each job's arrival to its end, (jobs,).
    """

    jobs: Sequence[Job]
    times: Floats


def names_of(option: str, joined: str) -> list[str]:
    """Return the names of a list that is joined by commas. Raises BadInput: one is there twice."""
    names = [name.strip() for name in joined.split(",")]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"{option}: {name} again: give each name once")
    return names


def comparison_table(
    what: str, unit: str, found: Mapping[str, Sequence[SequenceRun]], bounds: Mapping[str, Floats]
) -> Table:
    """Return mean completion times and their paired differences from the first policy's.

    Args:
        what: policies are, the head of their column.
        unit: of the times.
        found: runs of each policy on the same sequences.
        bounds: of each sequence, by what they are.
    """
    first = _means(next(iter(found.values())))
    heads = (f"JCT, {unit}", f"vs {next(iter(found))}", "in percent", "median", "p95")
    table = new_table(**{what: False}, **dict.fromkeys(heads, True))
    for number, (name, runs) in enumerate(found.items()):
        own = _means(runs)
        median, p95 = (float(np.mean([np.quantile(run.times, part) for run in runs])) for part in (0.5, 0.95))
        paired = ["", ""]
        if number:
            paired = [_text(estimate((own - first).tolist()), "+.2f"), _text(_percent(own, first), "+.1f")]
        table.add_row(name, _text(estimate(own.tolist())), *paired, f"{median:.2f}", f"{p95:.2f}")
    for name, bound in bounds.items():
        table.add_row(name, _text(estimate(bound.tolist())))
    return table


def comparison_document(
    what: str, unit: str, found: Mapping[str, Sequence[SequenceRun]], bounds: Floats | None
) -> dict[str, Any]:
    """Return the same for programs.

    Args:
        what: policies are, more than one of them.
        unit: of the times.
        found: see `comparison_table`.
        bounds: of each sequence, (sequences, ...); None: not asked for.
    """
    first = _means(next(iter(found.values())))
    policies = [
        {
            "name": name,
            f"jct_{unit}": asdict(estimate(_means(runs).tolist())),
            "difference": asdict(estimate((_means(runs) - first).tolist())),
            "percent": asdict(_percent(_means(runs), first)),
            "sequences": _means(runs).tolist(),
        }
        for name, runs in found.items()
    ]
    return {what: policies, "bounds": None if bounds is None else bounds.tolist()}


def run_table(unit: str, run: SequenceRun) -> Table:
    """Return what became of a sequence's jobs."""
    table = new_table(of_jobs=False, mean=True, median=True, p95=True)
    cells = float(run.times.mean()), *np.quantile(run.times, (0.5, 0.95)).tolist()
    table.add_row(f"completion time, {unit}", *(f"{cell:.2f}" for cell in cells))
    return table


def run_document(unit: str, run: SequenceRun) -> dict[str, Any]:
    """Return what became of each job, for programs."""
    jobs = [
        {
            "id": job.id,
            "model": job.model,
            "workers": job.max_workers,
            "servers": job.max_servers,
            "arrival_seconds": job.arrival,
            f"jct_{unit}": float(time),
        }
        for job, time in zip(run.jobs, run.times, strict=True)
    ]
    return {f"jct_{unit}": float(run.times.mean()), "jobs": jobs}


def _means(runs: Sequence[SequenceRun]) -> Floats:
    return np.array([run.times.mean() for run in runs])


def _percent(own: Floats, first: Floats) -> Estimate:
    return estimate((100 * (own / first - 1)).tolist())


def _text(value: Estimate, form: str = ".2f") -> str:
    return f"{value.mean:{form}}" + ("" if value.margin is None else f" ± {value.margin:{form.lstrip('+')}}")
