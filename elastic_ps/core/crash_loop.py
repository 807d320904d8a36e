"""This module tells deaths that follow each other, as in a crash loop, from those with work in between. It is pure."""

HEALTHY_SECONDS = 600.0
"""How long a job that makes steps has to go without a death until the next one counts as the first."""


def has_worked(last: float, version: float, now: float, reached: float) -> bool:
    """Return whether a job has done `HEALTHY_SECONDS` of work since its last death.

    Args:
        last: seconds of that death.
        version: the highest that the job had reached by then; or its epochs.
        now: seconds.
        reached: the highest so far, likewise.
    """
    return now - last >= HEALTHY_SECONDS and reached > version
