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
from dl2_scheduler.cluster.ranges import MOST_AMOUNT, MOST_SPEED
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

_MOST_ROLE = 1_000  # tasks of one role of a measured job: what is fitted to a row takes as long as it has tasks
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
    if len(counts) != 1 or 0 in counts or not all(job.workers and job.servers for job in row.jobs):
        raise ValueError("a job lacks a role or its speeds, or was measured more often than others")
    if any(len(role) > _MOST_ROLE for job in row.jobs for role in (job.workers, job.servers)):
        raise ValueError(f"a job has more than {_MOST_ROLE:,} tasks of one role")
    if not all(0 < speed <= MOST_SPEED for job in row.jobs for speed in job.speeds):
        raise ValueError(f"a speed is no number above 0, at most {MOST_SPEED:g}")
    cores = [*row.others, *(used for job in row.jobs for used in job.cpu or ())]
    if not all(0 <= used <= MOST_AMOUNT for used in cores):
        raise ValueError(f"the cores that something used are no number from 0, at most {MOST_AMOUNT:g}")
    return row


def read_table(path: Path) -> MeasuredTable:
    """Read a table's file. Raises BadInput: it is none."""
    try:
        lines = read_text(path).splitlines()
    except _WRONG as error:
        raise BadInput(f"{path} is no table of measured placements: {error}") from error
    at = 1
    try:
        about, groups, profiles = _read_head(lines[0] if lines else "")
        rows = []
        for at, line in enumerate(lines[1:], 2):  # noqa: B007  # which line is wrong is told
            rows.append(_row_of(line, profiles, groups))
    except _WRONG as error:
        raise BadInput(f"{path} is no table of measured placements: line {at}: {_words(error)}") from error
    return MeasuredTable(tuple(rows), profiles, groups, about)


def _read_head(line: str) -> tuple[dict[str, Any], int, dict[str, Profile]]:
    """Return what the first line says: what is to be known, the number of groups, and profiles. Raises ValueError."""
    about = json.loads(line) if line else None
    if not isinstance(about, dict) or not {"groups", "profiles"} <= about.keys():
        raise ValueError("it is no JSON object with groups and profiles")
    groups, profiles = about.pop("groups"), _PROFILES.validate_python(about.pop("profiles"))
    if not (type(groups) is int and 0 < groups <= MOST_GROUPS and profiles):
        raise ValueError(
            f"{groups!r} groups and {len(profiles)} profiles: give 1 to {MOST_GROUPS} groups, and a profile"
        )
    for profile in profiles.values():
        check_profile(profile)
    return about, groups, profiles


def _row_of(line: str, profiles: Mapping[str, Profile], groups: int) -> MeasuredPlacement:
    """Read a row of a table with these profiles and groups. Raises ValueError."""
    row = read_row(line)
    for job in row.jobs:
        if job.model not in profiles or not all(0 <= group < groups for group in (*job.workers, *job.servers)):
            raise ValueError(f"{job.model} has no profile there, or lies in no group")
    return row


def _words(error: Exception) -> str:
    """Return what is wrong in one sentence: of a validation the first thing."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]


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
