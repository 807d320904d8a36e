"""A `GroupState` is what the parts of a worker without servers share: its version, and the groups it knows."""

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, Configuration, NodeId
from elastic_ps.core.errors import JobEnded
from elastic_ps.core.model import Model
from elastic_ps.node.session import Session
from elastic_ps.node.vain_wait import AWAY_SECONDS
from elastic_ps.torch.allreduce.agreement import BEGINS
from elastic_ps.torch.allreduce.group import Rendezvous, WorkerGroup, why_failed
from elastic_ps.torch.allreduce.ledger import WorkersLedger
from elastic_ps.worker.wire.member_state import MemberState

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 30.0
PATIENCE_LEASES = 3.0
"""So long, whichever is more, a worker whose group has failed waits to hear of a death or a switch, as groups fail by
them. Leases: twice what the coordinator takes to expel who is silent.
"""


def givers(current: Configuration | None, prepared: Configuration) -> dict[NodeId, NodeId]:
    """Return by shadow whom it follows: shadows are dealt to the members that stay, from the last one on.

    Args:
        current: in force; None: none has been.
        prepared: by which the shadows join.
    """
    if current is None:
        return {}
    staying = [worker.id for worker in prepared.workers if worker.id in current.ranks]
    shadows = [worker.id for worker in prepared.workers if worker.id not in current.ranks]
    if not staying:
        return {}
    return {shadow: staying[-1 - number % len(staying)] for number, shadow in enumerate(shadows)}


@dataclass
class Following:
    """A `Following` says whom this worker follows, to join by a configuration.

    Attributes:
        number: of the configuration.
        giver: a member; "": there is none that stays.
        group: the connection of the two; None: not yet.
        failed: they could not connect.
    """

    number: ConfigId
    giver: NodeId
    group: WorkerGroup | None = None
    failed: bool = False


class GroupState(MemberState):
    """A `GroupState` keeps the groups of the configurations that a worker knows, under one lock.

    Args:
        session: with the coordinator.
        rendezvous: where members meet.

    Attributes:
        rendezvous: where members meet.
        held: the version that this worker holds; below 0: none, see `agreement`.
        fresh: a configuration has come into force, and its members have not agreed on a version yet.
        ledger: what was applied here.
        model: the job's tensors.
        awaits_blocks: a checkpoint is being read, from which the job starts.
        following: whom this worker follows, while it joins; None: nobody has said so yet.
        proven: the version held is one that members have agreed on, and no more than followed.
        copied: bytes that have come of a checkpoint, or of whom this worker follows: a plan waits while they grow.
        failed_group: the configuration whose members are to meet again, and how often their group has failed.
    """

    def __init__(self, session: Session, rendezvous: Rendezvous):
        super().__init__(session)
        self.rendezvous = rendezvous
        self.held = BEGINS
        self.fresh = False
        self.failed_group = NO_CONFIGURATION, 0
        self.ledger = WorkersLedger()
        self.model = Model()
        self.awaits_blocks = False
        self.following: Following | None = None
        self.proven = True
        self.copied = 0
        self._groups: dict[ConfigId, WorkerGroup] = {}
        self._building: dict[ConfigId, int] = {}  # attempts, the latest of each
        self._met = NO_CONFIGURATION  # whose shadows have been met last

    @property
    def version(self) -> int:
        """See `MemberState.version`."""
        return max(0, self.held)

    def preparation_advanced(self) -> None:
        """Take note that a group is built, or that a checkpoint is read. Called under the lock."""
        raise NotImplementedError

    @property
    def restored_version(self) -> int | None:
        """The version of what was read from a checkpoint; None: nothing was, or it is in the model by now."""
        raise NotImplementedError

    def shadow_is_met(self, shadow: NodeId, group: WorkerGroup) -> None:
        """Send to a shadow, which follows this member, by a connection."""
        raise NotImplementedError

    @property
    def group(self) -> WorkerGroup:
        """The group of the configuration in force, which is built; see `has_group`. Call under the lock."""
        return self._groups[self.standing.config_id]

    def has_group(self, number: ConfigId) -> bool:
        """Return whether this worker is connected to all members of a configuration. Call under the lock."""
        return number in self._groups

    def build(self, configuration: Configuration) -> None:
        """Connect to all members of a configuration, on a thread of its own, beside what goes on."""
        with self.changed:
            if configuration.id in self._groups or configuration.id in self._building:
                return
            self._building[configuration.id] = 0
        name = f"build-{configuration.id}"
        threading.Thread(target=self._build, args=(configuration,), name=name, daemon=True).start()

    def _build(self, configuration: Configuration) -> None:
        try:
            group = self.rendezvous.build(configuration, self.session.node, self.changed)
        except Exception as error:  # noqa: BLE001  # gloo's errors are of no one kind
            self._not_built(configuration.id, why_failed(error))
            return
        with self.changed:
            is_latest = self._end_attempt(configuration.id, 0)
            if is_latest and self._is_known(configuration.id):
                self._groups[configuration.id] = group
            else:
                group.close()
            self.preparation_advanced()
            self.changed.notify_all()
        if not is_latest:
            self._not_built(configuration.id, "their group has failed at another member")

    def _not_built(self, number: ConfigId, why: str) -> None:
        """End this worker where its members could not meet and nobody has said why: another may take its place.

        The coordinator says Prepare again meanwhile, or others meet again, so that a later try may bring them together.
        """
        with self.changed:
            self._end_attempt(number, 0)
        log.info("the group of configuration %s was not made: %s", number, why)
        self.waits_in_vain(lambda: not self._is_lacking(number))
        with self.changed:
            if self._ended is None and self._is_lacking(number):
                self.end(JobEnded(f"cannot connect to the other workers of configuration {number}: {why}", 1))

    def _end_attempt(self, number: ConfigId, attempt: int) -> bool:
        """Take note that an attempt to make a group is over; return whether none later is made. Call under the lock."""
        if self._building.get(number) != attempt:
            return False
        del self._building[number]
        return True

    def _is_lacking(self, number: ConfigId) -> bool:
        """Return whether this worker needs the group of a configuration and has none. Call under the lock."""
        return self._is_known(number) and number not in self._groups

    def waits_in_vain(self, is_told: Callable[[], bool], turns: float = 1) -> bool:
        """Wait for news from the coordinator, as of why a group has failed; return whether none has come in time.

        While the coordinator is away it can tell nobody: the wait begins anew when it is back, and ends after
        `AWAY_SECONDS` without it.

        Args:
            is_told: whether there is news, called under the lock; the end of this worker is news, too.
            turns: of patience that this worker has: the others may give up before. Infinity: it waits for what the
                others' scripts do, as long as the coordinator answers.
        """
        turn = max(PATIENCE_SECONDS, PATIENCE_LEASES * self.session.lease_seconds)
        started, away_since = time.monotonic(), math.inf
        with self.changed:
            while self._ended is None and not is_told():
                now, in_touch = time.monotonic(), self.session.in_touch_seconds
                if in_touch:
                    away_since = math.inf
                elif away_since == math.inf:
                    away_since = now
                    log.warning(
                        "this worker waits for the coordinator at %s to say how it goes on; it is away: %.0f h at most",
                        self.session.settings.coordinator,
                        AWAY_SECONDS / 3600,
                    )
                waited = min(now - started, in_touch)
                if waited >= turns * turn or now - away_since >= AWAY_SECONDS:
                    return True
                self.changed.wait(min(turn, turns * turn - waited))
        return False

    def regroup(self, failed: WorkerGroup | None, attempt: int = 1) -> None:
        """Connect to the members of the configuration in force once more, as its group has failed.

        A connection of two was reset, say, and nobody is gone. A group whose member leaves it fails at the others, too,
        so that all come to meet again; those that are in no collective hear of it by the coordinator. Where one is
        gone, another configuration will come. It is done on a thread of its own. The members agree on a version before
        their next step, as after a switch. All meet for the latest attempt that any of them makes, which takes the
        place of an earlier one that is under way here.

        Args:
            failed: the group; None: it is not made yet here.
            attempt: at which the others meet, if that is known.
        """
        if failed is not None:
            attempt = max(attempt, failed.attempt + 1)
        with self.changed:
            configuration = self.configuration
            number = configuration.id
            if self._groups.get(number) is not failed or self._building.get(number, -1) >= attempt:
                return
            self._building[number] = attempt
            self.failed_group = number, attempt
        self.session.report_soon()
        if failed is not None:
            failed.close()
        name, given = f"regroup-{number}-{attempt}", (configuration, failed, attempt)
        threading.Thread(target=self._regroup, args=given, name=name, daemon=True).start()

    def _regroup(self, configuration: Configuration, failed: WorkerGroup | None, attempt: int) -> None:
        group, why = None, ""
        try:
            group = self.rendezvous.build(configuration, self.session.node, self.changed, attempt)
        except Exception as error:  # noqa: BLE001  # gloo's errors are of no one kind
            why = why_failed(error)
        with self.changed:
            is_wanted = self._end_attempt(configuration.id, attempt) and self._groups.get(configuration.id) is failed
            is_wanted = is_wanted and self.standing.config_id == configuration.id
            if self.failed_group == (configuration.id, attempt):  # and not a later one, which is under way
                self.failed_group = NO_CONFIGURATION, 0
            if group is not None and is_wanted and self.ended is None:
                log.info("the workers of configuration %s have met again: their group had failed", configuration.id)
                self._groups[configuration.id] = group
                self.generation += 1
                self.fresh = True
            elif group is not None:
                group.close()
            else:
                log.info("the workers of configuration %s have not met again: %s", configuration.id, why)
            self.changed.notify_all()

    def hear_of_failed(self, number: ConfigId, attempt: int) -> None:
        """Meet the members again that wait for this one, if its own group is one that has failed at them, or none.

        Args:
            number: of the configuration.
            attempt: how often their group has failed.
        """
        with self.changed:
            is_wanted = number == self.standing.config_id and self.is_member and self._ended is None
            group = self._groups.get(number)
        if is_wanted and (group is None or group.attempt < attempt):
            self.regroup(group, attempt)

    def meet_shadows(self, configuration: Configuration) -> None:
        """Connect this worker to whom it follows, or to who follows it, by a plan of `configuration`; once."""
        with self.changed:
            if configuration.id <= self._met:
                return  # the directive has come again
            self._met = configuration.id
            dealt = givers(self.standing.current, configuration)
        own = self.session.node
        for shadow, giver in dealt.items():
            if own == giver:
                name = f"meet-{shadow}"
                threading.Thread(target=self._meet_shadow, args=(configuration, shadow), name=name, daemon=True).start()
        if self.is_member or own not in configuration.ranks:
            return
        following = Following(configuration.id, dealt.get(own, ""))
        with self.changed:
            before, self.following = self.following, following
            self.changed.notify_all()
        if before is not None and before.group is not None:
            before.group.close()
        if following.giver:
            name = f"meet-{following.giver}"
            threading.Thread(target=self._meet_giver, args=(configuration, following), name=name, daemon=True).start()

    def _meet_shadow(self, configuration: Configuration, shadow: NodeId) -> None:
        members = {worker.id: worker for worker in configuration.workers}
        own = self.session.node
        try:
            group = self.rendezvous.connect(members[own], members[shadow], configuration.id, own, self.changed)
        except Exception as error:  # noqa: BLE001  # gloo's errors are of no one kind
            log.info("%s does not follow: %s", shadow, why_failed(error))
            return
        self.shadow_is_met(shadow, group)

    def _meet_giver(self, configuration: Configuration, following: Following) -> None:
        members = {worker.id: worker for worker in configuration.workers}
        own = self.session.node
        try:
            group = self.rendezvous.connect(members[following.giver], members[own], configuration.id, own, self.changed)
        except Exception as error:  # noqa: BLE001  # likewise
            log.info("cannot follow %s: %s", following.giver, why_failed(error))
            group = None
        with self.changed:
            following.group, following.failed = group, group is None
            if group is not None and self.following is not following:
                group.close()
            self.changed.notify_all()

    def _is_known(self, number: ConfigId) -> bool:
        return any(known.id == number for known in self.standing.known)

    def drop_groups(self) -> None:
        """Let go of groups that no configuration needs any more. Call under the lock."""
        for number in [number for number in self._groups if not self._is_known(number)]:
            self._groups.pop(number).close()

    def close_groups(self) -> None:
        """Let go of all groups, and wait a moment until they are gone."""
        with self.changed:
            groups = list(self._groups.values())
            self._groups.clear()
        for group in groups:
            group.close()
        for group in groups:
            group.join()
