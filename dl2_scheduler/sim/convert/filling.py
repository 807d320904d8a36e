"""This module fills in what public traces lack."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.jobs import Job, Resources
from dl2_scheduler.cluster.ranges import LATEST
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.sim.catalogue import CATALOGUE
from dl2_scheduler.sim.shipped import shipped_speeds

MOST_TASKS = 16
MOST_BYTES = 512 << 20
"""Of a file: the largest public one has 200 MB."""

_LEAST_EPOCHS = 0.001

FILLING_RULES = (
    "arrival: counted from the first job's",
    "model: where the trace says none, one of the catalogue's models of the same kind (with or without GPUs), by the "
    "CRC-32 of the job's id",
    "samples_per_epoch: the model's in the catalogue",
    "epochs: what the model trains, by the shipped speeds, in the time and with the workers and servers of the trace; "
    "as many servers as workers where the trace has none",
    f"max_workers, max_servers: {MOST_TASKS}; a job with more in the trace counts as one with {MOST_TASKS}",
    "worker, server: the model's in the catalogue, where the trace says nothing",
)
"""For people; they hold for every source."""


@dataclass(frozen=True)
class TracedJob:
    """A job as a public trace has it.

    Attributes:
        id: in the trace.
        arrival: seconds since any moment.
        seconds: that it ran, with the counts below.
        workers: it had.
        servers: it had; 0: the trace knows none.
        worker: what one took; None: the trace does not say.
        server: what one took; None: the trace does not say.
        on_gpus: whether its workers took GPUs.
        model: of the catalogue; None: the trace does not say.
    """

    id: str
    arrival: float
    seconds: float
    workers: int
    servers: int = 0
    worker: Resources | None = None
    server: Resources | None = None
    on_gpus: bool = True
    model: str | None = None


@dataclass
class Read:
    """A `Read` is what was found in a source.

    Attributes:
        jobs: in any order.
        left_out: jobs that could not be used, by reason.
    """

    jobs: list[TracedJob] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def fill(seen: Sequence[TracedJob]) -> list[Job]:
    """Return jobs of ours by arrival, then id, the first at 0.

    Raises:
        BadInput: an id comes again, or a job cannot be.
    """
    speeds = shipped_speeds(MOST_TASKS, MOST_TASKS)
    ordered = sorted(seen, key=lambda job: (job.arrival, job.id))
    if again := [name for name, count in Counter(job.id for job in ordered).items() if count > 1]:
        raise BadInput(f"job {again[0]} again: give every job once")
    jobs = [_fill_one(job, job.arrival - ordered[0].arrival, speeds) for job in ordered]
    for job in jobs:
        try:
            job.check()
        except BadInput as error:
            raise BadInput(f"job {job.id}: {error}") from error
    return jobs


def _fill_one(seen: TracedJob, arrival: float, speeds: Speeds) -> Job:
    name = seen.model or _any_model(seen)
    model = CATALOGUE[name]
    workers = min(seen.workers, MOST_TASKS)
    servers = min(seen.servers or workers, MOST_TASKS)
    samples = speeds.of(name, servers, workers) * seen.seconds
    return Job(
        id=seen.id,
        arrival=round(arrival, 3),
        model=name,
        epochs=max(_LEAST_EPOCHS, round(samples / model.samples_per_epoch, 3)),
        samples_per_epoch=model.samples_per_epoch,
        worker=model.worker if seen.worker is None else seen.worker,
        server=model.server if seen.server is None else seen.server,
        max_workers=MOST_TASKS,
        max_servers=MOST_TASKS,
    )


def _any_model(seen: TracedJob) -> str:
    alike = [name for name, model in CATALOGUE.items() if model.on_gpus == seen.on_gpus]
    return alike[crc32(seen.id.encode("utf-8", "surrogatepass")) % len(alike)]


def amount(text: Any, where: str, most: float = LATEST) -> float | None:
    """Return a number of a CSV file, from 0 to `most`, or None where the cell is empty.

    Args:
        text: of the cell.
        where: it stands, for errors.
        most: the largest number that it may be.

    Raises:
        BadInput: it is no such number.
    """
    if not text or text.lower() == "nan":
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:
        raise BadInput(f"{where} is {text[:40]}: give a number from 0 to {most:g}")
    return value
