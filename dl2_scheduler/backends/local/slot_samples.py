"""This module tells, slot by slot, how fast jobs train where their tasks are: what models of speeds are fitted to."""

from collections.abc import Collection, Sequence

from dl2_scheduler.backends.local.job_records import JobRecord
from dl2_scheduler.cluster.desk import LiveJobPhase
from dl2_scheduler.cluster.hardware.measured import MeasuredJob, MeasuredPlacement
from dl2_scheduler.cluster.jobs import Node

Seen = tuple[tuple[int, tuple[tuple[str, ...], tuple[str, ...]]], ...]
"""Of each job with tasks its number and its places."""


class SlotSamples:
    """These `SlotSamples` are one for each slot at whose end all tasks are where they were a slot before.

    A job tells its speed over its last steps, so that all of them were made at these places beside these others.

    Args:
        nodes: of the cluster; a node's number is that of its group.
    """

    def __init__(self, nodes: Sequence[Node]):
        self._index = {node.name: number for number, node in enumerate(nodes)}
        self._seen: Seen = ()

    def at_end_of_slot(self, records: Sequence[JobRecord], heard: Collection[int]) -> MeasuredPlacement | None:
        """Return what jobs measured in a slot, None where it says nothing about these places.

        Args:
            records: of all jobs that have not ended.
            heard: numbers of those that have just told how they are.
        """
        there = [record for record in records if record.phase.has_processes]
        seen = tuple((record.number, record.places) for record in there)
        stayed, self._seen = seen == self._seen, seen
        settled = all(record.number in heard and self._is_settled(record) for record in there)
        if not (stayed and there and settled):
            return None
        return MeasuredPlacement(tuple(map(self._job, there)))

    def _is_settled(self, record: JobRecord) -> bool:
        """Return whether a job trains with a known node for each of its tasks."""
        counts = record.workers, record.servers
        known = all(name in self._index for names in record.places for name in names)
        whole = all(counts) and tuple(map(len, record.places)) == counts
        return record.phase is LiveJobPhase.RUNNING and known and whole and record.samples_per_second > 0

    def _job(self, record: JobRecord) -> MeasuredJob:
        workers, servers = (tuple(self._index[name] for name in names) for names in record.places)
        return MeasuredJob(record.document.model, workers, servers, (record.samples_per_second,))
