"""This module decides whom a server refuses, and why, where some workers push a key that others do not. Pure."""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.script_hints import FOLLOW_FROM_EPOCH, PUSH_SAME_KEYS
from elastic_ps.server.phases import Given
from elastic_ps.transport.frame_kinds import Reason


@dataclass(frozen=True)
class Refusal:
    """A `Refusal` says why blocks could not be updated.

    Attributes:
        detail: for people.
        workers: who is told: their scripts end.
        reason: for programs.
    """

    detail: str
    workers: tuple[NodeId, ...]
    reason: Reason = Reason.MISMATCH


def mismatch(names: Iterable[str], given: Sequence[int], workers: Sequence[NodeId], settled: Set[NodeId]) -> Refusal:
    """Return the refusal of pushes that do not have the same keys.

    Who has just joined ends alone where all others agree; the job goes on without it. Else all end.

    Args:
        names: of the keys that some have pushed.
        given: what each worker has contributed, by rank (see `Given`).
        workers: by rank.
        settled: the workers who have made steps of this job together before.
    """
    kinds = Given.GRADIENT, Given.ABSENT
    by_kind = {kind: [rank for rank, each in enumerate(given) if each == kind] for kind in kinds}
    pushing, lacking = (", ".join(f"{rank} ({workers[rank]})" for rank in ranks) for ranks in by_kind.values())
    keys = ", ".join(dict.fromkeys(names))
    detail = f"key {keys}: pushed by rank {pushing} but not by rank {lacking}; {PUSH_SAME_KEYS}"
    agreed = {kind for kind, ranks in by_kind.items() if any(workers[rank] in settled for rank in ranks)}
    if len(agreed) != 1:
        return Refusal(detail, tuple(workers))
    apart = next(ranks for kind, ranks in by_kind.items() if kind not in agreed)
    return Refusal(f"{detail}. {FOLLOW_FROM_EPOCH}", tuple(workers[rank] for rank in apart), Reason.APART)
