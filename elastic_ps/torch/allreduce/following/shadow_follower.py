"""A `ShadowFollower` is the end of a follow stream at the worker that joins: it comes to hold what members hold."""

import logging
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch

from elastic_ps.core.errors import ProtocolError
from elastic_ps.torch.allreduce.agreement import BEGINS, LACKS
from elastic_ps.torch.allreduce.following.follow_stream import (
    END,
    GIVER,
    PAUSE,
    RECORD,
    SNAPSHOT,
    part_sizes,
    ranges_of,
    take_part,
)
from elastic_ps.torch.allreduce.group import Collective, WorkerGroup, why_failed
from elastic_ps.torch.allreduce.group_state import Following, GroupState
from elastic_ps.torch.allreduce.membership import GroupMembership
from elastic_ps.torch.allreduce.replica.replica import Replica
from elastic_ps.torch.allreduce.replica.state_bytes import unpack
from elastic_ps.torch.allreduce.summing.layout import Sums
from elastic_ps.torch.allreduce.transfer import give_told, take_bytes, take_over, take_told
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)

_NEAR = 1
"""With so many records behind what has come, or fewer, a shadow has caught up."""

_Memory = dict[torch.dtype, torch.Tensor]


@dataclass
class _Arrival:
    """A part of a message, that has come; `parameters` None: the statistics, by which a record ends."""

    told: dict[str, Any]
    parameters: range | None = None
    values: Sums | None = None
    packed: torch.Tensor | None = None
    memory: _Memory | None = None

    @property
    def nbytes(self) -> int:
        """The bytes that have come."""
        packed = 0 if self.packed is None else self.packed.nbytes
        return packed + sum(each.nbytes for each in (self.values or {}).values())


class ShadowFollower:
    """A `ShadowFollower` applies a stream's snapshots and records on the script's thread, which has nothing else to do.

    The version it holds counts only between two records; where the stream breaks off within one, it holds nothing.

    Args:
        node: this worker.
        membership: switches it.
        replica: its model and optimizer.
    """

    def __init__(self, node: GroupState, membership: GroupMembership, replica: Replica):
        self._node = node
        self._membership = membership
        self._replica = replica
        self._arrived: deque[_Arrival] = deque()
        self._memory: deque[_Memory] = deque([{}, {}])  # one is filled while another is applied
        self._torn = False
        self._synced = False
        self._over = False

    def follow(self, following: Following) -> None:
        """Follow a member until that has switched, and say SYNCED as soon as this worker has caught up.

        What it holds then is in `node.held`: less than a member where the stream has failed.
        """
        node = self._node
        self._hold_nothing()
        node.wait(
            lambda: following.group is not None or following.failed or not following.giver or self._is_off(following)
        )
        if following.group is not None:
            self._take_all(following, following.group)
            following.group.close()
        with node.changed:
            self._over = True
            node.changed.notify_all()
        if self._torn:
            self._hold_nothing()
        if not self._is_off(following):
            self._say_synced(following)

    def _hold_nothing(self) -> None:
        with self._node.changed:  # a Welcome may tell meanwhile that the job trains
            self._node.held = LACKS if self._node.inherited else BEGINS

    def _is_off(self, following: Following) -> bool:
        """Return whether nothing comes of the plan by which this worker was to join, or of its giver."""
        standing = self._node.standing
        if standing.is_member and standing.config_id >= following.number:
            return following.giver not in self._node.configuration.ranks
        return self._node.following is not following or standing.cancelled >= following.number

    def _take_all(self, following: Following, group: WorkerGroup) -> None:
        node = self._node
        collective = group.submit(lambda: self._receive(group))
        while True:
            node.wait(
                lambda: self._arrived or collective.done or self._is_off(following),
                lambda: {following.giver: "the end of its follow stream"} if node.is_member else {},
            )
            with node.changed:
                if self._is_off(following):
                    if not node.is_member:
                        self._hold_nothing()
                        self._torn = False
                    return
                arrival = self._arrived.popleft() if self._arrived else None
            if arrival is None:
                self._ended(collective, following)
                return
            self._apply(arrival, following)
            if arrival.memory is not None:
                with node.changed:
                    self._memory.append(arrival.memory)
                    node.changed.notify_all()

    def _ended(self, collective: Collective, following: Following) -> None:
        if isinstance(collective.error, RuntimeError):
            log.info("%s is not followed any more: %s", following.giver, why_failed(collective.error))
        elif collective.error is not None:
            raise collective.error
        elif collective.value == PAUSE:
            log.info("%s is followed no more: this worker gets all at the switch", following.giver)
            self._hold_nothing()
            self._torn = False

    def _say_synced(self, following: Following) -> None:
        if not self._synced:
            self._synced = True
            self._replica.fingerprint()  # the first is slow, and all wait for that of the agreement at the switch
            self._node.session.acknowledge(pb.SYNCED, following.number, self._node.version)

    # ---- on the script's thread --------------------------------------------------------------------------------------

    def _apply(self, arrival: _Arrival, following: Following) -> None:
        node, replica, told = self._node, self._replica, arrival.told
        if arrival.packed is not None:
            given = unpack(replica, arrival.packed)
            if told["whole"]:
                node.held = take_over(given, node)
        elif arrival.parameters is not None:
            assert arrival.values is not None
            self._torn = True
            replica.apply_portion(arrival.parameters, told["present"], told["numbers"], arrival.values)
            return
        else:
            assert arrival.values is not None
            replica.set_statistics(arrival.values)
            self._torn = False
            self._take_record(told)
        if node.held >= 0:
            if told["behind"] <= _NEAR:
                self._say_synced(following)
            self._membership.step_ended(time.monotonic())

    def _take_record(self, told: dict[str, Any]) -> None:
        """Hold the next version. A Welcome of another configuration may have this worker hold nothing at any moment."""
        node = self._node
        with node.changed:
            if node.held < 0:
                return
            if node.held != told["version"]:
                raise ProtocolError(f"a record of version {told['version']} has come to version {node.held}")
            node.ledger.settle(told["version"])
            node.ledger.append(pb.LedgerEntry.FromString(bytes.fromhex(told["entry"])))
            node.held = told["version"] + 1

    # ---- on the thread of the connection -----------------------------------------------------------------------------

    def _receive(self, group: WorkerGroup) -> str:
        """Receive until the end; return its kind."""
        give_told(group, {"shape": self._replica.shape()})  # it has rehearsed
        while True:
            told = take_told(group, GIVER)
            if told["kind"] in (END, PAUSE):
                return str(told["kind"])
            if told["kind"] == SNAPSHOT:
                self._put(_Arrival(told, packed=take_bytes(group, GIVER)))
                continue
            assert told["kind"] == RECORD
            ranges = ranges_of(told)
            sizes = part_sizes(self._replica.layout, ranges)
            for parameters, size in zip([*ranges, None], sizes, strict=True):
                memory = self._free_memory()
                self._put(_Arrival(told, parameters, take_part(group, size, memory), memory=memory))

    def _free_memory(self) -> _Memory:
        node = self._node
        with node.changed:
            node.changed.wait_for(lambda: self._memory or self._over or node.ended)
            return self._memory.popleft() if self._memory else {}

    def _put(self, arrival: _Arrival) -> None:
        with self._node.changed:
            self._node.copied += arrival.nbytes
            self._arrived.append(arrival)
            self._node.changed.notify_all()
