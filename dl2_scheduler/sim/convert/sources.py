"""This module finds the readers of public traces by their names."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.sim.convert import pai, philly, pollux
from dl2_scheduler.sim.convert.filling import FILLING_RULES, Read, fill


class TraceSource(StrEnum):
    """Where a public trace is from."""

    PHILLY = "philly"
    PAI = "pai"
    POLLUX = "pollux"


_READERS: Mapping[TraceSource, tuple[Callable[[Sequence[Path]], Read], tuple[str, ...]]] = {
    TraceSource.PHILLY: (philly.read, philly.RULES),
    TraceSource.PAI: (pai.read, pai.RULES),
    TraceSource.POLLUX: (pollux.read, pollux.RULES),
}


@dataclass(frozen=True)
class Converted:
    """This holds a public trace that has been converted to one of ours.

    Attributes:
        jobs: by arrival.
        left_out: how many could not be used, by reason.
        rules: by which it was read and filled, for people.
    """

    jobs: list[Job]
    left_out: Mapping[str, int]
    rules: tuple[str, ...]


def convert(source: TraceSource, paths: Sequence[Path], most: int | None = None) -> Converted:
    """Convert a public trace.

    Args:
        source: of it.
        paths: its files.
        most: jobs to take, the first ones; None: all.

    Raises:
        BadInput: with file, line and reason; or no job is left.
    """
    read, rules = _READERS[source]
    found = read(paths)
    if not found.jobs:
        raise BadInput(f"{', '.join(map(str, paths))}: no job can be used; left out: {dict(found.left_out)}")
    earliest = sorted(found.jobs, key=lambda job: (job.arrival, job.id))[:most]
    return Converted(fill(earliest), found.left_out, (*rules, *FILLING_RULES))
