"""When a policy loses its place: pure."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class GuardSettings:
    """Of the guard.

    Attributes:
        margin: part by which the policy's mean completion time may be above the baseline's.
        slots: in a row in which it is further above, after which it loses its place.
    """

    margin: float = 0.1
    slots: int = 5


@dataclass(frozen=True)
class Comparison:
    """Of one slot's state.

    Attributes:
        slot: number.
        policy: by its name.
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
        return self.own / self.baseline - 1


@dataclass(frozen=True)
class PolicyStanding:
    """Of one policy.

    Attributes:
        policy: by its name.
        worse: slots in a row in which it was worse by more than the margin.
        last: comparison; None: there was none.
    """

    policy: str = ""
    worse: int = 0
    last: Comparison | None = None


def seen(standing: PolicyStanding, comparison: Comparison, settings: GuardSettings) -> PolicyStanding:
    """After one more comparison; another policy begins anew."""
    if comparison.policy != standing.policy:
        standing = PolicyStanding(comparison.policy)
    worse = standing.worse + 1 if comparison.above > settings.margin else 0
    return replace(standing, worse=worse, last=comparison)


def verdict(standing: PolicyStanding, settings: GuardSettings, baseline: str) -> str:
    """Why the policy loses its place, for people; "": it keeps it."""
    last = standing.last
    if last is None or standing.worse < settings.slots:
        return ""
    return (
        f"for {standing.worse} slots in a row jobs would have ended later than under {baseline} by more than "
        f"{settings.margin:.0%}; in slot {last.slot} after {last.own:.1f} slots instead of {last.baseline:.1f}"
    )
