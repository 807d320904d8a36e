"""This module counts how many deaths a launcher mends before it gives up the job (`--max-restarts`, `retryLimit`).

A job may run for weeks, so a number of deaths over its whole life would end it some day, however well it had mended
each. A crash loop shall end it soon. So deaths count from when the job last did `HEALTHY_SECONDS` of work without one.
"""

import math
from dataclasses import dataclass, replace

from elastic_ps.core.crash_loop import has_worked


@dataclass(frozen=True, slots=True)
class RestartBudget:
    """A `RestartBudget` knows how many deaths a launcher mends, and those that it has seen in a row.

    Attributes:
        allowed: `--max-restarts`.
        deaths: in a row, described for people.
        last: monotonic seconds of the last of them.
        version: the highest that the job had reached by then.
    """

    allowed: int
    deaths: tuple[str, ...] = ()
    last: float = -math.inf
    version: int = -1

    def spend(self, death: str, now: float, version: int) -> "RestartBudget":
        """Return the budget after one more death.

        It counts as the first one if the job has done `HEALTHY_SECONDS` of work since the last. Steps that were made
        before are no work: a job that dies at one step each time, on its way from its checkpoint, is in a crash loop.

        Args:
            death: described for people.
            now: monotonic seconds.
            version: the highest that the job has reached so far.
        """
        is_healthy = has_worked(self.last, self.version, now, version)
        deaths = () if is_healthy and not self.exhausted else self.deaths
        return replace(self, deaths=(*deaths, death), last=now, version=max(version, self.version))

    @property
    def exhausted(self) -> bool:
        """Return whether a death has happened that may not be mended."""
        return len(self.deaths) > self.allowed
