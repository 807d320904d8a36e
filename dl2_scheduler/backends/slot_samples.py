"""This module tells, slot by slot, how fast jobs train where their tasks are: what models of speeds are fitted to."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from dl2_scheduler.cluster.hardware.measured import MeasuredJob, MeasuredPlacement


@dataclass(frozen=True)
class PlacedJob:
    """A `PlacedJob` is a job with tasks, as it stands at a slot's end.

    Attributes:
        id: another one where a task has been replaced since, also by one on the same node.
        model: that it trains.
        workers: the name of the node of each worker.
        servers: the name of the node of each server.
        speed: samples a second, over its last steps with these tasks; 0: it has not told one.
    """

    id: Hashable
    model: str
    workers: tuple[str, ...]
    servers: tuple[str, ...]
    speed: float


class SlotSamples:
    """These `SlotSamples` are one for each slot at whose end all tasks are where they were a slot before.

    A job tells its speed over its last steps, so that all of them were made at these places beside these others.
    """

    def __init__(self) -> None:
        self._seen: list[tuple[Hashable, tuple[str, ...], tuple[str, ...]]] = []

    def at_end_of_slot(self, jobs: Sequence[PlacedJob], nodes: Sequence[str]) -> MeasuredPlacement | None:
        """Return what jobs measured in a slot, None where it says nothing about these places.

        Args:
            jobs: all that have tasks.
            nodes: their names; a node's number is that of its group.
        """
        seen = [(job.id, job.workers, job.servers) for job in jobs]
        stayed, self._seen = seen == self._seen, seen
        index = {name: number for number, name in enumerate(nodes)}
        if not (stayed and jobs and all(_tells(job, index) for job in jobs)):
            return None
        return MeasuredPlacement(
            tuple(
                MeasuredJob(
                    job.model,
                    tuple(index[name] for name in job.workers),
                    tuple(index[name] for name in job.servers),
                    (job.speed,),
                )
                for job in jobs
            )
        )


def _tells(job: PlacedJob, nodes: dict[str, int]) -> bool:
    """Return whether a job trains, with a known node for each of its tasks."""
    known = all(name in nodes for name in (*job.workers, *job.servers))
    return bool(job.workers and job.servers) and known and job.speed > 0
