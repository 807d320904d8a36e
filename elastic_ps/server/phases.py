"""This module decides what a server does beyond its `Standing`. It is pure; the shell acts.

The rules are those of docs/reference/protocol.md ("A plan", "Server", "A PUSH is judged").
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.configuration import ConfigId, Configuration, NodeId
from elastic_ps.core.data_order import DataSpec
from elastic_ps.node.standing import Standing

Bytes = NDArray[np.int8]


class BlockStatus(IntEnum):
    """A `BlockStatus` says what a server holds of a block."""

    ABSENT = 0
    EMPTY = 1  # its primary; the first values have not come
    FOLLOWER = 2  # a copy, whole from its first version on; perhaps the next primary's, whose hand-over has not come
    PRIMARY = 3
    FROZEN = 4  # handed over; kept until the plan is committed
    LEAVING = 5  # by the configuration in force another's, to whom it has not been handed over yet


def having(status: Bytes, *kinds: BlockStatus) -> NDArray[np.bool_]:
    """Return where a status is one of `kinds`: numpy takes a plain number at four times the speed of an enum's."""
    result: NDArray[np.bool_] = status == int(kinds[0])
    for kind in kinds[1:]:
        result |= status == int(kind)
    return result


class FrameVerdict(Enum):
    """A `FrameVerdict` says what a server does with a worker's frame, by its configuration and sender."""

    SERVE = auto()
    SWITCH = auto()  # the prepared configuration is decided: switch, then judge again
    STALE = auto()  # refused; the refusal names the configuration in force
    HOLD = auto()  # newer than anything known here: the control plane will bring it
    UNKNOWN = auto()  # the sender is not in the roster


class BlockVerdict(IntEnum):
    """A `BlockVerdict` says what a server does with one block of a push."""

    KEEP = 0  # contributes to the open update; async, ssp: is an update
    ANSWER = 1  # updated already: the worker gets the value
    HOLD = 2  # the block is not here yet, or behind
    FOREIGN = 3  # another server's


_KEEP, _ANSWER, _HOLD, _FOREIGN = map(int, BlockVerdict)


class Given(IntEnum):
    """`Given` says what a worker contributed to a block's open update."""

    NOTHING = 0
    GRADIENT = 1
    ABSENT = 2  # it did not push the key
    EMPTY = 3  # it has no samples in this step: agrees with whatever the others push


class UpdateOutcome(Enum):
    """An `UpdateOutcome` says what becomes of a block once every worker has contributed."""

    UPDATE = auto()
    KEEP = auto()  # nobody pushed its key: the version grows, the value stays
    MISMATCH = auto()


@dataclass(frozen=True)
class Moves:
    """`Moves` are the blocks that a configuration takes from a server and gives to it.

    Attributes:
        out: the blocks that go, by new owner, ascending.
        into: the blocks that come, by previous owner, ascending.
        fresh: blocks that nobody held before.
        streams: the blocks of this server of which others get or keep copies by it, by these, ascending.
        feeders: the blocks of which this server gets or keeps copies by it, by their owners, ascending.
        copies: blocks that nobody held before, and that this server follows.
    """

    out: dict[NodeId, list[int]] = field(default_factory=dict)
    into: dict[NodeId, list[int]] = field(default_factory=dict)
    fresh: list[int] = field(default_factory=list)
    streams: dict[NodeId, list[int]] = field(default_factory=dict)
    feeders: dict[NodeId, list[int]] = field(default_factory=dict)
    copies: list[int] = field(default_factory=list)

    @property
    def incoming(self) -> list[int]:
        """Blocks of which other servers give this one copies, ascending."""
        return sorted(block for blocks in self.feeders.values() for block in blocks)


def moves(node: NodeId, current: Configuration | None, prepared: Configuration) -> Moves:
    """Return which blocks a configuration moves, as seen from server `node`.

    Args:
        node: the server.
        current: the configuration in force; None: there is none.
        prepared: the next one.
    """
    result = Moves()
    known = len(current.assignment) if current else 0
    for block in range(len(prepared.assignment)):
        after, follower = prepared.primary(block), prepared.follower(block)
        before = current.primary(block) if current and block < known else None
        followed_by = current.follower(block) if current and block < known else None
        if (after, follower) != (before, followed_by):
            _add_copies(result, node, before, (after, follower), block)
        if after == before:
            continue
        if before == node:
            result.out.setdefault(after, []).append(block)
        elif after == node and before is None:
            result.fresh.append(block)
        elif after == node and before is not None:
            result.into.setdefault(before, []).append(block)
    return result


def _add_copies(result: Moves, node: NodeId, owner: NodeId | None, copies: Sequence[NodeId | None], block: int) -> None:
    """Add who gets copies of a block that a plan gives another owner or follower."""
    others = [copy for copy in copies if copy is not None and copy != owner]
    if owner is None:
        if copies[1] == node:
            result.copies.append(block)
    elif owner == node:
        for copy in others:
            result.streams.setdefault(copy, []).append(block)
    elif node in others:
        result.feeders.setdefault(owner, []).append(block)


def due(standing: Standing, versions: NDArray[np.int64]) -> bool:
    """Return whether all of a server's blocks, of these versions, have reached the clock. One without any is told."""
    return len(versions) > 0 and standing.due(int(versions.min()))


def judge(standing: Standing, number: ConfigId, sender: NodeId, reads: bool = False) -> FrameVerdict:
    """Judge a worker's frame by its configuration and sender.

    Args:
        standing: this server's.
        number: id of the frame's configuration.
        sender: the worker.
        reads: it changes nothing, so a shadow may send it.
    """
    if standing.decided(number):
        return FrameVerdict.SWITCH
    if number < standing.config_id:
        return FrameVerdict.STALE
    if number > standing.config_id:
        return FrameVerdict.HOLD
    if reads or (standing.current is not None and sender in standing.current.ranks):
        return FrameVerdict.SERVE
    return FrameVerdict.UNKNOWN


def parts(status: Bytes, wanted: NDArray[np.bool_], known: NDArray[np.bool_]) -> Bytes:
    """Judge the blocks of a push: a `BlockVerdict` for each.

    Args:
        status: the status of each block.
        wanted: the block, where it is here, can take the push.
        known: it has taken it before.
    """
    primary = having(status, BlockStatus.PRIMARY)
    result = np.full(len(status), _HOLD, dtype=np.int8)
    result[primary & wanted] = _KEEP
    result[primary & known] = _ANSWER
    result[having(status, BlockStatus.ABSENT, BlockStatus.FROZEN)] = _FOREIGN
    return result


def outcome(given: Sequence[int]) -> UpdateOutcome:
    """Return what becomes of a block to which the workers, in rank order, contributed `given` (see `Given`)."""
    kinds = set(given) - {Given.EMPTY}
    if kinds == {Given.GRADIENT}:
        return UpdateOutcome.UPDATE
    return UpdateOutcome.MISMATCH if Given.GRADIENT in kinds else UpdateOutcome.KEEP


def weights(data: DataSpec, auxiliary: bool, samples: Sequence[int]) -> tuple[list[float] | None, float]:
    """Return how contributions of `samples` each become one (protocol, invariants 3 and 8).

    Args:
        data: batch and loss of the job.
        auxiliary: the tensor is a running statistic.
        samples: how many samples are behind each contribution.

    Returns:
        A factor for each contribution before the sum (None: all 1), and one for the sum.
    """
    total = sum(samples)
    if auxiliary or (data.elastic and data.loss == "mean"):
        if len(samples) == 1:
            return None, 1.0
        if not total:  # static data that says nothing of its size: all workers count the same
            return [1 / len(samples)] * len(samples), 1.0
        return [count / total for count in samples], 1.0
    return None, data.global_batch / total if data.elastic and total else 1.0
