"""This module keeps what a node knows of configurations, and what news of them means. Pure.

docs/reference/protocol.md has the rules, under "Nodes". A server and a worker keep the same; where they differ is what
they do at a switch.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto

from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, Configuration, NodeId
from elastic_ps.core.model import Run


class ArmAnswer(Enum):
    """An `ArmAnswer` is what a node answers to Arm."""

    ARMED = auto()
    LATE = auto()  # its version is past the clock
    SWITCHED = auto()  # the configuration has been in force here before
    IGNORE = auto()  # no such configuration is prepared here


@dataclass(frozen=True)
class Standing:
    """A `Standing` is the configurations that a node knows.

    Attributes:
        node: this node.
        current: in force; None before the job starts.
        prepared: acknowledged, waiting for its clock or its decision.
        clock: version at which `prepared` takes effect.
        paused: `prepared` (after the switch: `current`) migrates in pause mode.
        dead: nodes that take no part any more; names are never used again.
        cancelled: highest cancelled id; ids are never used again.
        undecided: `prepared` is of a server's death: who owns what is decided by what survivors answer, and comes with
            Adopt. Nobody adopts it on a peer's word.
        replicated: some configuration that it has known names followers.
        before: in force here before `current`, the one that was committed last; None once `current` is committed.
        promoted: runs of blocks of `current` that a server's death has given to their owners at once, which not all may
            have heard of; () once it is committed.
    """

    node: NodeId
    current: Configuration | None = None
    prepared: Configuration | None = None
    clock: int | None = None
    paused: bool = False
    dead: frozenset[NodeId] = frozenset()
    cancelled: ConfigId = NO_CONFIGURATION
    undecided: bool = False
    replicated: bool = False
    before: Configuration | None = None
    promoted: tuple[Run, ...] = ()

    @property
    def config_id(self) -> ConfigId:
        """The id, (term, number), of the configuration in force."""
        return self.current.id if self.current else NO_CONFIGURATION

    @property
    def is_member(self) -> bool:
        """Return whether this node is in the configuration in force."""
        return self.current is not None and self.node in self.current.members

    @property
    def known(self) -> tuple[Configuration, ...]:
        """The configurations `current` and `prepared`, those that there are."""
        return tuple(each for each in (self.current, self.prepared) if each)

    def knows(self, node: NodeId) -> bool:
        """Return whether a node is in a configuration in force here, prepared, or handed over from."""
        return any(node in each.members for each in (*self.known, *((self.before,) if self.before else ())))

    def is_new(self, config_id: ConfigId) -> bool:
        """Return whether `config_id` is beyond what is in force, prepared or cancelled here: a first Prepare is."""
        latest = self.prepared.id if self.prepared else self.config_id
        return config_id > max(latest, self.cancelled)

    def passes_by(self, config_id: ConfigId) -> bool:
        """Return whether `config_id`, which is in force, came about without this node: a joiner waits for its plan."""
        return not self.is_member and config_id > self.config_id and not self.decided(config_id)

    def has_left(self, config_id: ConfigId) -> bool:
        """Return whether a later configuration than `config_id` is in force here: what belongs to that is out of date.

        A directive may be on its way for as long as it likes, while peers bring the word of a switch.
        """
        return config_id < self.config_id

    def decided(self, config_id: ConfigId) -> bool:
        """Return whether news that `config_id` is in force somewhere means: switch now."""
        return self.holds(config_id) and not self.undecided

    def holds(self, config_id: ConfigId) -> bool:
        """Return whether `config_id` is prepared."""
        return self.prepared is not None and self.prepared.id == config_id

    def due(self, version: int) -> bool:
        """Return whether a node of which everything has reached `version` switches by its clock."""
        return self.clock is not None and version >= self.clock

    def prepare(
        self, configuration: Configuration, paused: bool, dead: frozenset[NodeId], undecided: bool = False
    ) -> "Standing":
        """Hold a configuration ready. One that is not new changes nothing.

        Args:
            configuration: to take effect later.
            paused: it migrates in pause mode.
            dead: nodes that take no part any more. Where there are none, all before it is committed.
            undecided: what it comes to is decided later.
        """
        if not self.is_new(configuration.id):
            return self
        standing = self if dead else self.commit()
        return replace(
            standing,
            prepared=configuration,
            clock=None,
            paused=paused,
            dead=self.dead | dead,
            undecided=undecided,
            replicated=self.replicated or any(known.followers for known in (*self.known, configuration)),
        )

    def commit(self) -> "Standing":
        """Take note that the configuration in force is committed."""
        return replace(self, before=None, promoted=())

    def decide(self, config_id: ConfigId, decided: Configuration | None, promoted: Iterable[Run] = ()) -> "Standing":
        """Take note that the coordinator has decided a configuration, if it is prepared: the switch comes next.

        Args:
            config_id: the configuration's.
            decided: what a server's death had left open of it; None: it is what is prepared.
            promoted: runs of blocks that their owners have at once.
        """
        if not self.holds(config_id):
            return self
        return replace(self, prepared=decided or self.prepared, undecided=False, promoted=tuple(promoted))

    def arm(self, config_id: ConfigId, clock: int, version: int) -> tuple["Standing", ArmAnswer]:
        """Let `prepared` take effect at `clock`; armed again, the later order counts.

        Args:
            config_id: of the configuration that the order is about.
            clock: a version.
            version: of this node; of a server, the largest of its blocks.
        """
        if config_id == self.config_id:
            return self, ArmAnswer.SWITCHED
        if not self.decided(config_id):
            return self, ArmAnswer.IGNORE
        if version > clock:  # an older clock is void with it: the coordinator sends a later one to all
            return replace(self, clock=None), ArmAnswer.LATE
        return replace(self, clock=clock), ArmAnswer.ARMED

    def switch(self) -> "Standing":
        """Put `prepared` in force."""
        assert self.prepared is not None
        before = self.before or self.current
        return replace(self, current=self.prepared, prepared=None, clock=None, undecided=False, before=before)

    def cancel(self, config_id: ConfigId) -> "Standing":
        """Forget a prepared configuration, and refuse it from now on."""
        standing = replace(self, cancelled=max(self.cancelled, config_id))
        return replace(standing, prepared=None, clock=None, undecided=False) if self.holds(config_id) else standing
