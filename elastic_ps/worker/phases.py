"""What a worker decides about configurations. Pure: (tables, event) -> (tables, what to do)."""

from dataclasses import dataclass, field, replace
from enum import Enum, auto

from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, Configuration, NodeId


class Verdict(Enum):
    """What a worker does with a directive about a configuration."""

    IGNORE = auto()  # it is about a configuration that is no longer, or not yet, prepared here
    ARM = auto()  # the clock is set
    LATE = auto()  # this worker's version is past the clock
    SWITCH = auto()  # swap the tables now
    SWITCHED = auto()  # it has been swapped before: say so again


@dataclass(frozen=True)
class Tables:
    """The configurations that a worker knows.

    Attributes:
        current: in force; None before the job starts.
        prepared: acknowledged, waiting for its clock or its decision.
        clock: version at which `prepared` takes effect.
        paused: `prepared` migrates in pause mode: wait for Resume after the switch.
        dead: servers whose replies are not taken any more, since `prepared` records their death.
    """

    current: Configuration | None = None
    prepared: Configuration | None = None
    clock: int | None = None
    paused: bool = False
    dead: frozenset[NodeId] = field(default_factory=frozenset)

    @property
    def number(self) -> ConfigId:
        """(term, number) in force."""
        return self.current.id if self.current else NO_CONFIGURATION

    def is_news(self, number: ConfigId, node: NodeId) -> bool:
        """Whether `number`, which is in force, came about without `node`: a joiner that waited for its plan."""
        if self.current is None:
            return True
        awaited = self.prepared is not None and self.prepared.id == number
        return number > self.number and node not in self.current.ranks and not awaited

    def prepare(self, configuration: Configuration, paused: bool, dead: frozenset[NodeId]) -> "Tables":
        """Hold a table ready. A repeated or an older one changes nothing."""
        known = self.prepared.id if self.prepared else self.number
        if configuration.id <= known:
            return self
        return replace(self, prepared=configuration, clock=None, paused=paused, dead=dead)

    def arm(self, number: ConfigId, clock: int, version: int) -> tuple["Tables", Verdict]:
        """`prepared` takes effect at `clock`; `version` is this worker's. Armed again, the later order counts."""
        if number == self.number:
            return self, Verdict.SWITCHED
        if self.prepared is None or self.prepared.id != number:
            return self, Verdict.IGNORE
        if version > clock:
            return self, Verdict.LATE
        armed = replace(self, clock=clock)
        return armed, Verdict.SWITCH if version == clock else Verdict.ARM

    def decide(self, number: ConfigId) -> Verdict:
        """Somebody has switched to `number`, or the coordinator says that it is decided."""
        if number == self.number:
            return Verdict.SWITCHED
        if self.prepared is not None and self.prepared.id == number:
            return Verdict.SWITCH
        return Verdict.IGNORE

    def due(self, version: int) -> bool:
        """Whether a worker that has just reached `version` switches."""
        return self.clock is not None and version >= self.clock

    def switch(self) -> "Tables":
        """`prepared` is in force."""
        assert self.prepared is not None
        return Tables(current=self.prepared, paused=self.paused, dead=self.dead)

    def cancel(self, number: ConfigId) -> "Tables":
        """Forget a prepared configuration."""
        if self.prepared is None or self.prepared.id != number:
            return self
        return replace(self, prepared=None, clock=None)
