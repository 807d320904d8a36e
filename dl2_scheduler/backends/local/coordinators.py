"""This module asks the coordinators of running jobs how they are, where silence and refusal are answers too."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from dl2_scheduler.backends.local.job_records import JobRecord
from dl2_scheduler.backends.local.runtime import (
    Declined,
    JobReport,
    JobRuntime,
    LauncherEnding,
    Over,
    Unreachable,
)

_THREADS = 16


class Coordinators:
    """`Coordinators` ask each job's coordinator, and return None where it does not answer or will not tell.

    Args:
        runtime: reaches the coordinators.
    """

    def __init__(self, runtime: JobRuntime):
        self._runtime = runtime
        self._refusals: dict[int, str] = {}  # by record: what they said instead of a report
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="asks")

    def hear(self, record: JobRecord) -> JobReport | LauncherEnding | None:
        """Return what a job's coordinator says, or how the job ends where it is over and its launcher still runs."""
        self._refusals.pop(record.number, None)
        if record.process is None:
            return None
        try:
            return self._runtime.report(record.name, record.process)
        except Over as over:
            return over.ending
        except Unreachable:
            return None
        except Declined as refused:
            self._refusals[record.number] = str(refused)
            return None

    def hear_all(self, records: Sequence[JobRecord]) -> list[JobReport | LauncherEnding | None]:
        """Return what `hear` does of each job; they are asked at the same time, as one that is frozen takes seconds."""
        try:
            heard = self._pool.map(self.hear, records)
        except RuntimeError:  # no thread can be started: there are as many processes as there may be
            return [self.hear(record) for record in records]
        return list(heard)

    def silence(self, record: JobRecord) -> str:
        """Return why a job's coordinator said nothing when it was last asked, for people."""
        refusal = self._refusals.get(record.number)
        return f"its coordinator does not answer: {refusal}" if refusal else "its coordinator does not answer"

    def report(self, record: JobRecord) -> JobReport | None:
        """Return what a job's coordinator says; None also where the job is over."""
        heard = self.hear(record)
        return heard if isinstance(heard, JobReport) else None

    def since(self, record: JobRecord) -> float | None:
        """Return when a job began to train with the nodes that it has, in unix seconds."""
        try:
            return self._runtime.since(record.name)
        except (Unreachable, Declined):
            return None

    def why_back(self, record: JobRecord) -> str:
        """Return why a job last went back to its checkpoint, for people; "" where nobody knows."""
        try:
            return self._runtime.why_back(record.name)
        except (Unreachable, Declined):
            return ""
