"""Jobs that have not said how many samples an epoch has are taken to have as many as others of their type.

A job says it when it trains, and one whose data is fixed never does. Without it each job of a known type would look
nearly done until it has run for a slot, and the policies of dreams, of the judge and of the guard see what it needs.
"""

from dataclasses import replace

from dl2_scheduler.cluster.snapshot import JobState, Snapshot


def told_in(snapshot: Snapshot) -> dict[str, float]:
    """Return the samples of an epoch by type, as the jobs of a slot have told; where they differ, as the last has."""
    told = [state.job for state in snapshot.jobs if state.job.samples_known]
    return {job.model: job.samples_per_epoch for job in told}


class KnownSamples:
    """`KnownSamples` remember, slot by slot, what the jobs of each type have told."""

    def __init__(self) -> None:
        self._by_type: dict[str, float] = {}

    def seen(self, snapshot: Snapshot) -> Snapshot:
        """Take in a slot, and return it as policies see it; jobs of a type that nobody has told of stay as they are."""
        self._by_type |= told_in(snapshot)
        return replace(snapshot, jobs=tuple(map(self._seen, snapshot.jobs)))

    def _seen(self, state: JobState) -> JobState:
        job = state.job
        if job.samples_known or job.model not in self._by_type:
            return state
        return replace(state, job=replace(job, samples_per_epoch=self._by_type[job.model]), samples_guessed=True)
