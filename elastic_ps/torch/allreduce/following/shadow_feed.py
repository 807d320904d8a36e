"""A `ShadowFeed` is the giver's end of a follow stream; `ShadowFeeds` are all of a member."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, NodeId
from elastic_ps.core.errors import ElasticError
from elastic_ps.torch.allreduce.following.follow_stream import (
    END,
    PAUSE,
    RECORD,
    SHADOW,
    SNAPSHOT,
    give_part,
    ranges_told,
    record_parts,
)
from elastic_ps.torch.allreduce.group import WorkerGroup, why_failed
from elastic_ps.torch.allreduce.replica.record import StepRecord
from elastic_ps.torch.allreduce.replica.replica import Portion, Replica
from elastic_ps.torch.allreduce.replica.state_bytes import pack
from elastic_ps.torch.allreduce.summing.layout import Sums
from elastic_ps.torch.allreduce.summing.step_buffers import is_in
from elastic_ps.torch.allreduce.transfer import give_bytes, give_told, take_told

log = logging.getLogger(__name__)

PORTION_BYTES = 16 << 20
"""What a portion has at least, where the model is not smaller: little, so that one is copied fast."""

SNAPSHOT_STEPS = 8
"""About so many steps a snapshot takes, one portion a step: more, and more records are sent with it; fewer, and a
portion is longer in the way of the next update."""

IDLE_SECONDS = 1.0
"""Where no update has come for so long since the last copy (the script evaluates, say), the next portion is copied."""

WAITING_RECORDS = 32
WAITING_BYTES = 1 << 30
"""A shadow for which more records wait, or more bytes of more than three, cannot keep up."""


@dataclass
class _Message:
    """A `_Message` is to be sent; `sums`: the record's, which must stay until then."""

    told: dict[str, Any]
    parts: list[Sums] = field(default_factory=list)
    packed: torch.Tensor | None = None
    sums: Sums | None = None


class ShadowFeed:
    """A `ShadowFeed` sends a shadow a snapshot in portions, and records of what it has been sent.

    Args:
        shadow: the worker that joins.
        replica: this member's.
        told: returns what goes with a whole snapshot.
        version: returns what this member holds.
        feeds: of this member.

    Attributes:
        over: nothing is added to the stream any more.
        sums: those of the record that is being sent.
    """

    def __init__(
        self,
        shadow: NodeId,
        replica: Replica,
        told: Callable[[], dict[str, Any]],
        version: Callable[[], int],
        feeds: "ShadowFeeds",
    ):
        self.shadow = shadow
        self.over = False
        self.sums: Sums | None = None
        self._replica = replica
        self._told = told
        self._version = version
        self._feeds = feeds
        self._portions: list[Portion] | None = None  # not divided yet
        self._copied = 0  # portions
        self._copied_at = -1  # version
        self._copied_when = 0.0  # monotonic seconds
        self._waiting: deque[_Message] = deque()

    # ---- on the script's thread, under the lock ----------------------------------------------------------------------

    def record(self, record: StepRecord) -> None:
        """Queue what a record has of the portions that have been copied; it is applied here next."""
        if self.over or not self._copied or self._portions is None:
            return
        records = [message for message in self._waiting if message.sums is not None]
        size = sum(whole.nbytes for whole in record.sums.values())
        if len(records) >= WAITING_RECORDS or (len(records) >= 3 and (len(records) + 1) * size > WAITING_BYTES):
            log.info("%s cannot keep up: it gets all at the switch", self.shadow)
            self.end(PAUSE)
            return
        ranges = [portion.parameters for portion in self._portions[: self._copied] if portion.parameters]
        told = {
            "kind": RECORD,
            "version": record.version,
            "ranges": ranges_told(ranges),
            "present": record.present,
            "numbers": record.numbers,
            "entry": record.entry.SerializeToString().hex(),
        }
        parts = list(record_parts(self._replica.layout, ranges, dict(record.sums)))
        self._waiting.append(_Message(told, parts, sums=dict(record.sums)))

    def end(self, kind: str = END) -> None:
        """Let nothing come behind what waits; behind a pause, nothing of that either."""
        if self.over:
            return
        if kind == PAUSE:
            self._waiting.clear()
        self.over = True
        self._waiting.append(_Message({"kind": kind}))

    @property
    def is_done(self) -> bool:
        """Return whether all has been sent."""
        return self.over and self.sums is None and not self._waiting

    def uses(self, memory: torch.Tensor) -> bool:
        """Return whether a record that is not sent yet lies in some memory."""
        held = [self.sums, *(message.sums for message in self._waiting)]
        return any(is_in(memory, sums) for sums in held)

    # ---- on the thread of the connection -----------------------------------------------------------------------------

    def run(self, group: WorkerGroup) -> None:
        """Send until the end, or until the shadow is not wanted any more."""
        feeds = self._feeds
        try:
            if take_told(group, SHADOW)["shape"] != self._replica.shape():  # it has rehearsed
                with feeds.changed:
                    self.end(PAUSE)  # gloo would end both processes: the agreement says what is not alike
            while True:
                self._copy()
                with feeds.changed:
                    feeds.changed.wait_for(
                        lambda: self.over or self._waiting or (self._is_due() and not feeds.still.locked()),
                        IDLE_SECONDS,  # a portion comes to be due without a word
                    )
                    if not self._waiting:
                        if self.over:
                            return
                        continue
                    message = self._waiting.popleft()
                    self.sums = message.sums
                self._send(group, message)
        except RuntimeError as error:  # gloo's
            log.info("%s follows no more: %s", self.shadow, why_failed(error))
        finally:
            with feeds.changed:
                self.over, self.sums = True, None
                self._waiting.clear()

    def _send(self, group: WorkerGroup, message: _Message) -> None:
        with self._feeds.changed:
            behind = sum(other.sums is not None for other in self._waiting)
        give_told(group, {**message.told, "behind": behind})
        if message.packed is not None:
            give_bytes(group, message.packed)
        for part in message.parts:
            give_part(group, part)
            self._copy()  # soon behind an update, so that it is long done when the next one comes
        with self._feeds.changed:
            self.sums = None

    def _is_due(self) -> bool:
        """Return whether the next portion may be copied: none while one waits, and one a version while that grows."""
        with self._feeds.changed:
            if self.over or self._version() < 0:
                return False
            if self._version() == self._copied_at and time.monotonic() < self._copied_when + IDLE_SECONDS:
                return False
            if self._portions is None:
                return True
            waits = any(message.packed is not None for message in self._waiting)
            return self._copied < len(self._portions) and not waits

    def _copy(self) -> None:
        """Copy the next portion, if it is due and no update is under way."""
        feeds = self._feeds
        if not self._is_due() or not feeds.still.acquire(blocking=False):
            return
        try:
            message = self._next_portion()
            with feeds.changed:
                if not self.over:
                    self._copied_at, self._copied_when = self._version(), time.monotonic()
                    self._copied += 1
                    self._waiting.append(message)
        except ElasticError as error:  # the optimizer keeps what cannot be given: the agreement says so
            log.info("%s gets all at the switch: %s", self.shadow, error)
            with feeds.changed:
                self.end(PAUSE)
        finally:
            feeds.still.release()
            with feeds.changed:  # another stream may be due
                feeds.changed.notify_all()

    def _next_portion(self) -> _Message:
        replica = self._replica
        if self._portions is None:
            replica.check_parts()
            self._portions = replica.portions(max(PORTION_BYTES, replica.total_bytes // SNAPSHOT_STEPS))
        whole = self._copied + 1 == len(self._portions)
        packed = pack(replica, self._told() if whole else {}, self._portions[self._copied])
        return _Message({"kind": SNAPSHOT, "whole": whole}, packed=packed)


class ShadowFeeds:
    """`ShadowFeeds` are the follow streams that a member gives, and what keeps updates and copies apart.

    Attributes:
        changed: guards the streams' queues; notified when there is something to send or to copy.
        still: held while the replica is updated, or a portion of it copied.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.still = threading.Lock()
        self._feeds: list[ShadowFeed] = []
        self._groups: list[WorkerGroup] = []
        self._met: list[tuple[NodeId, WorkerGroup]] = []  # before there is a replica
        self._latest: dict[NodeId, ConfigId] = {}  # by shadow: of whose plan it was met last
        self._make: Callable[[NodeId], ShadowFeed] | None = None

    def begin(self, make: Callable[[NodeId], ShadowFeed]) -> None:
        """Send to those that have been met, and to who comes, by streams that `make` makes."""
        with self.changed:
            self._make, met, self._met = make, self._met, []
        for shadow, group in met:
            self.meet(shadow, group)

    def meet(self, shadow: NodeId, group: WorkerGroup) -> None:
        """Send to a shadow by a connection, as soon as there is a replica."""
        with self.changed:
            if self._make is None:
                self._met.append((shadow, group))
                return
            if group.number < self._latest.get(shadow, NO_CONFIGURATION):  # it has taken long: a later plan came first
                group.close()
                return
            self._latest[shadow] = group.number
            for other in self._feeds:
                if other.shadow == shadow:  # of an earlier plan
                    other.end(PAUSE)
            feed = self._make(shadow)
            self._feeds.append(feed)
            self._groups = [*(other for other in self._groups if other.is_open), group]
        group.submit(lambda: feed.run(group))
        group.close()

    @contextmanager
    def updating(self, record: StepRecord | None = None) -> Iterator[None]:
        """Let the replica be changed within; no portion is copied meanwhile.

        Args:
            record: by which it is updated, which the shadows get at once; None: it becomes another altogether.
        """
        with self.still:
            with self.changed:
                self._feeds = [feed for feed in self._feeds if not feed.is_done]
                for feed in self._feeds:
                    feed.record(record) if record is not None else feed.end(PAUSE)
                self.changed.notify_all()
            yield
        with self.changed:
            self.changed.notify_all()

    def spoiled(self) -> None:
        """Let all shadows get all at the switch: the record that they are sent is not whole any more."""
        with self.changed:
            for feed in self._feeds:
                feed.end(PAUSE)
            self.changed.notify_all()

    def end(self, members: Collection[NodeId]) -> None:
        """End the streams to those that are members now, behind what waits: this one has switched."""
        with self.changed:
            for feed in self._feeds:
                if feed.shadow in members:
                    feed.end()
            self.changed.notify_all()

    def close(self) -> None:
        """Let go of all shadows, and wait a moment until the connections are gone."""
        self.keep(())
        with self.changed:
            met, self._met = self._met, []
            groups = [*self._groups, *(group for _, group in met)]
        for _, group in met:
            group.close()
        for group in groups:
            group.join()

    def keep(self, known: Collection[NodeId]) -> None:
        """Let go of shadows that no configuration names any more."""
        with self.changed:
            for feed in self._feeds:
                if feed.shadow not in known:
                    feed.end(PAUSE)
            self.changed.notify_all()

    def uses(self, memory: torch.Tensor) -> bool:
        """Return whether a record that is not sent yet lies in some memory."""
        with self.changed:
            return any(feed.uses(memory) for feed in self._feeds)
