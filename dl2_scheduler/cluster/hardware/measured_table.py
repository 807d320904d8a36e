"""This module reads and writes tables of measured placements, and shows their rows as arrays.

A table is a file of JSON lines. The first one says what was measured (the machine, the licence, the models' profiles),
each other one is a `MeasuredPlacement`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.measured import MeasuredPlacement
from dl2_scheduler.cluster.hardware.placements import SERVER, WORKER, PlacementArrays
from dl2_scheduler.cluster.hardware.profiles import Profile, check_profile
from elastic_ps.system.bounded_files import read_text


@dataclass(frozen=True)
class MeasuredTable:
    """A `MeasuredTable` is what was measured on one cluster.

    Attributes:
        placements: the rows.
        profiles: of the models, each with one worker and one server alone.
        groups: of the cluster.
        about: what else is to be known of it.
    """

    placements: tuple[MeasuredPlacement, ...]
    profiles: Mapping[str, Profile]
    groups: int
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def models(self) -> tuple[str, ...]:
        """Return the models in the order of arrays' indices."""
        return tuple(sorted(self.profiles))

    def lines(self) -> Iterator[str]:
        """Yield the lines of its file."""
        head = {"groups": self.groups, "profiles": {name: asdict(each) for name, each in self.profiles.items()}}
        yield json.dumps({**self.about, **head})
        yield from (row_line(placement) for placement in self.placements)


MOST_GROUPS = 10_000
"""Of a measured cluster."""
_WRONG = OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError, ValidationError
_ROW = TypeAdapter(MeasuredPlacement)
_PROFILES = TypeAdapter(dict[str, Profile])


def row_line(row: MeasuredPlacement) -> str:
    """Return a row as a line of a table."""
    return _ROW.dump_json(row, exclude_defaults=True).decode()


def read_row(line: str | bytes) -> MeasuredPlacement:
    """Read a row of a table. Raises ValueError: it is none."""
    row = _ROW.validate_json(line)
    counts = {len(job.speeds) for job in row.jobs}
    if len(counts) != 1 or not all(job.workers and job.servers for job in row.jobs):
        raise ValueError("a job lacks a role, or was measured more often than others")
    if not all(speed > 0 and np.isfinite(speed) for job in row.jobs for speed in job.speeds):
        raise ValueError("a speed is no positive number")
    cores = [*row.others, *(used for job in row.jobs for used in job.cpu or ())]
    if not all(used >= 0 and np.isfinite(used) for used in cores):
        raise ValueError("the cores that something used are less than none, or no number")
    return row


def read_table(path: Path) -> MeasuredTable:
    """Read a table's file. Raises BadInput: it is none."""
    try:
        head, *rows = read_text(path).splitlines()
        about = json.loads(head)
        groups, profiles = about.pop("groups"), _PROFILES.validate_python(about.pop("profiles"))
        if not (type(groups) is int and 0 < groups <= MOST_GROUPS and profiles):
            raise ValueError(
                f"{groups!r} groups and {len(profiles)} profiles: give 1 to {MOST_GROUPS} groups, and a profile"
            )
        for profile in profiles.values():
            check_profile(profile)
        table = MeasuredTable(tuple(read_row(row) for row in rows), profiles, groups, about)
    except _WRONG as error:
        raise BadInput(f"{path} is no table of measured placements: {error}") from error
    for number, row in enumerate(table.placements, 2):
        for job in row.jobs:
            if job.model not in profiles or not all(0 <= group < groups for group in (*job.workers, *job.servers)):
                raise BadInput(f"{path}, line {number}: {job.model} has no profile there, or lies in no group")
    return table


def arrays_of(row: MeasuredPlacement, models: Sequence[str]) -> PlacementArrays:
    """Return where the tasks of a row lie.

    Args:
        row: of models that are known.
        models: in the order of their indices.
    """
    tasks = [
        (number, role, group)
        for number, job in enumerate(row.jobs)
        for role, groups in ((WORKER, job.workers), (SERVER, job.servers))
        for group in groups
    ]
    job, role, group = np.array(tasks, dtype=np.int64).reshape(-1, 3).T
    model = np.array([models.index(each.model) for each in row.jobs], dtype=np.int64)
    return PlacementArrays(model, job.copy(), role.copy(), group.copy(), np.arange(len(model)))
