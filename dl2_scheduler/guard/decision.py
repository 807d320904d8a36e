"""This module decides when a policy loses its place, and when it gets it back. It is pure."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class GuardSettings:
    """`GuardSettings` say how much worse a policy may be, and for how long.

    Attributes:
        margin: part by which the policy's mean completion time may be above the baseline's.
        slots: in a row in which it is further above, after which it loses its place.
    """

    margin: float = 0.1
    slots: int = 5


_RETURN_SLOTS = 3
"""So many times as many good slots in a row as bad ones lost it its place give it back; twice as many after each
further loss. Good is better than the baseline, whatever the margin: it is to gain something by it. Where both take as
long, which a few jobs always do, nothing is known, and nothing counted."""

_LEAST_SLOTS = 1e-9  # of a mean: jobs that have next to nothing left end after 0 slots, by rounding


@dataclass(frozen=True)
class Comparison:
    """A `Comparison` says how the policy and the baseline do from one slot's state on.

    Attributes:
        slot: number.
        policy: the policy's name.
        own: mean slots until the present jobs end, as the policy plays it.
        baseline: as the baseline plays it.
        jobs: how many were compared.
    """

    slot: int
    policy: str
    own: float
    baseline: float
    jobs: int

    @property
    def above(self) -> float:
        """Part by which the policy takes longer; negative: it is the better one."""
        return (self.own - self.baseline) / max(self.baseline, _LEAST_SLOTS)


@dataclass(frozen=True)
class PolicyStanding:
    """A `PolicyStanding` says how long one policy has been worse than the baseline, or better.

    Attributes:
        policy: the policy's name.
        worse: slots in a row in which it was worse by more than the margin.
        good: slots in which it was better, since it was last worse at all.
        losses: how often it has lost its place, as far as this process knows.
        last: comparison; None: there was none.
    """

    policy: str = ""
    worse: int = 0
    good: int = 0
    losses: int = 0
    last: Comparison | None = None


def seen(standing: PolicyStanding, comparison: Comparison, settings: GuardSettings) -> PolicyStanding:
    """Return a policy's standing after one more comparison; another policy begins anew, and a slot counts once.

    Args:
        standing: before.
        comparison: the new one.
        settings: the settings of the guard.
    """
    if comparison.policy != standing.policy:
        standing = PolicyStanding(comparison.policy)
    if standing.last is not None and comparison.slot <= standing.last.slot:
        return standing
    worse = standing.worse + 1 if comparison.above > settings.margin else 0
    good = 0 if comparison.above > 0 else standing.good + (comparison.above < 0)
    return replace(standing, worse=worse, good=good, last=comparison)


def lost(standing: PolicyStanding) -> PolicyStanding:
    """Return a policy's standing when it has lost its place."""
    return replace(standing, worse=0, good=0, losses=standing.losses + 1)


def verdict(standing: PolicyStanding, settings: GuardSettings, baseline: str) -> str:
    """Return why the policy loses its place, for people; "" where it keeps it.

    Args:
        standing: the standing of the policy.
        settings: the settings of the guard.
        baseline: the name of the policy that it is compared with.
    """
    last = standing.last
    if last is None or standing.worse < settings.slots:
        return ""
    return (
        f"for {standing.worse} slots in a row jobs would have ended later than under {baseline} by more than "
        f"{settings.margin:.0%}; in slot {last.slot} after {last.own:.1f} slots instead of {last.baseline:.1f}"
    )


def pardon(standing: PolicyStanding, settings: GuardSettings, baseline: str) -> str:
    """Return why a policy that has lost its place gets it back, for people; "" where it does not.

    Args:
        standing: the standing of the policy.
        settings: the settings of the guard.
        baseline: the name of the policy that decides meanwhile.
    """
    last, needed = standing.last, _RETURN_SLOTS * settings.slots * 2 ** max(0, standing.losses - 1)
    if last is None or standing.good < needed:
        return ""
    return (
        f"in {standing.good} slots jobs would have ended sooner than under {baseline}, and in none later; in slot "
        f"{last.slot} after {last.own:.1f} slots instead of {last.baseline:.1f}"
    )
