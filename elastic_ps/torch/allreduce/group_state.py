"""A `GroupState` is what the parts of a worker without servers share: its version, and the groups it knows."""

import logging
import threading

from elastic_ps.core.configuration import ConfigId, Configuration
from elastic_ps.core.errors import JobEnded
from elastic_ps.core.model import Model
from elastic_ps.node.session import Session
from elastic_ps.torch.allreduce.agreement import BEGINS
from elastic_ps.torch.allreduce.group import Rendezvous, WorkerGroup
from elastic_ps.torch.allreduce.ledger import WorkersLedger
from elastic_ps.worker.wire.member_state import MemberState

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 30.0
"""So long a worker whose group has failed waits to hear of a death or a switch, which are why groups fail: twice what
the coordinator takes to expel who is silent, with the usual lease."""


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
    """

    def __init__(self, session: Session, rendezvous: Rendezvous):
        super().__init__(session)
        self.rendezvous = rendezvous
        self.held = BEGINS
        self.fresh = False
        self.ledger = WorkersLedger()
        self.model = Model()
        self.awaits_blocks = False
        self._groups: dict[ConfigId, WorkerGroup] = {}
        self._building: set[ConfigId] = set()

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

    @property
    def group(self) -> WorkerGroup:
        """The group of the configuration in force, which was built before that. Call under the lock."""
        return self._groups[self.standing.config_id]

    def has_group(self, number: ConfigId) -> bool:
        """Return whether this worker is connected to all members of a configuration. Call under the lock."""
        return number in self._groups

    def build(self, configuration: Configuration) -> None:
        """Connect to all members of a configuration, on a thread of its own, beside what goes on."""
        with self.changed:
            if configuration.id in self._groups or configuration.id in self._building:
                return
            self._building.add(configuration.id)
        name = f"build-{configuration.id}"
        threading.Thread(target=self._build, args=(configuration,), name=name, daemon=True).start()

    def _build(self, configuration: Configuration) -> None:
        try:
            group = self.rendezvous.build(configuration, self.session.node, self.changed)
        except Exception as error:  # noqa: BLE001  # gloo's errors are of no one kind
            self._not_built(configuration.id, str(error).splitlines()[0])
            return
        with self.changed:
            self._building.discard(configuration.id)
            if self._is_known(configuration.id):
                self._groups[configuration.id] = group
            else:
                group.close()
            self.preparation_advanced()
            self.changed.notify_all()

    def _not_built(self, number: ConfigId, why: str) -> None:
        """End this worker where its members could not meet and nobody has said why: another may take its place."""
        with self.changed:
            self._building.discard(number)
            awaited = self._is_known(number)
        log.info("the group of configuration %s was not made: %s", number, why)
        if awaited and not self.session.closes_within(PATIENCE_SECONDS):
            with self.changed:
                awaited = self._is_known(number)
            if awaited:
                self.end(JobEnded(f"cannot connect to the other workers of configuration {number}: {why}", 1))

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
