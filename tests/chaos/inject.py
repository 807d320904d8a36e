"""What a fault does: to a process by signals, to a link by rules; and how one that passes is taken back."""

import os
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from tests.chaos import cells, network
from tests.chaos.cells import Fault
from tests.chaos.disturbed import ROLES, DisturbedJob, Node, chosen, unregistered

_JOINS = ("joining", "shadow")
_MEMBERS = ("member",)


@dataclass
class Injection:
    """One fault that is made of a job.

    Args:
        job: that it happens to.
        fault: what is made.

    Attributes:
        targets: whom it met, once `choose` was called.
    """

    job: DisturbedJob
    fault: Fault
    targets: list[Node] = field(default_factory=list)
    _chance: random.Random = field(init=False)
    _connections: list[network.Connection] = field(default_factory=list)
    _rules: list[network.Rule] = field(default_factory=list)
    _broken: int = 0

    def __post_init__(self) -> None:
        self._chance = random.Random(self.fault.seed)

    def choose(self) -> tuple[list[Node], Callable[[], None]]:
        """Choose whom to meet, of those who are there now; returns them and what does it to them."""
        role, joiner = self.fault.cell.role, self.fault.joiner
        if role == cells.COORDINATOR:
            self.targets = [self.job.coordinator]
        elif role in (cells.WORKER, cells.SERVER):
            self.targets = [self._one(role, joiner)]
        elif role == cells.EXCHANGE:
            met = (self.fault.cell.phase, self.fault.cell.kind) == (
                "REGISTERED",
                cells.RESET,
            )  # joiners have no links yet
            self.targets = [self._one("worker", not joiner and not met), self._one("server", joiner and not met)]
        elif role == cells.FOLLOWING:  # what moves, moves to a server that joins, from any of the others
            self.targets = [self._one("server", True), *self.job.nodes("server", _MEMBERS)]
        else:
            other = self._chance.choice([role for role in ROLES if self.job.nodes(role)])
            self.targets = [self._one(other, joiner), self.job.coordinator]
        if self.fault.cell.kind == cells.RESET:
            self._connections = self._open()  # looked for now: the phase may last less than that takes
        return self.targets, self._make

    def undo(self) -> None:
        """Take back what can be: a stopped process goes on, a link's packets come through."""
        if self.fault.cell.kind in (cells.STOP, cells.FREEZE):
            with suppress(ProcessLookupError):
                os.kill(self.targets[0].pid, signal.SIGCONT)
        if self._rules:
            self._broken = network.lift(self._rules)
            self._rules = []

    @property
    def has_fired(self) -> bool:
        """Whether it met anything: packets that were dropped, connections that were reset."""
        if not self.fault.cell.of_network:
            return True
        return self._broken > 0 or (bool(self._rules) and network.count_dropped(self._rules) > 0)

    def has_taken_effect(self, names: set[str]) -> bool:
        """Whether the job has noticed what never mends itself.

        Args:
            names: of all nodes that it knows now.
        """
        kind, coordinator = self.fault.cell.kind, self.targets[-1].role == "coordinator"
        if kind in (cells.KILL, cells.FREEZE):
            return self.job.coordinator.pid != self.targets[0].pid if coordinator else self.targets[0].name not in names
        return kind != cells.CUT or any(node.role in ROLES and node.name not in names for node in self.targets)

    def _one(self, role: str, joiner: bool) -> Node:
        """One of a role: who joins, where that is wanted; processes that have yet to, where there are no others."""
        joining = self.job.nodes(role, _JOINS) if joiner else []
        known = joining or self.job.nodes(role, _MEMBERS) or self.job.nodes(role)
        return chosen(known or [unregistered(role, pid) for pid in self.job.waiting("hold-init")], self._chance)

    def _make(self) -> None:
        kind = self.fault.cell.kind
        if kind in (cells.KILL, cells.STOP, cells.FREEZE):
            os.kill(self.targets[0].pid, signal.SIGKILL if kind == cells.KILL else signal.SIGSTOP)
            return
        if kind == cells.RESET:
            self._broken = network.reset(self._connections or self._open())
        else:
            self._rules = [rule for one, other in self._links() for rule in network.rules(one, other, self.fault.way)]
            network.drop(self._rules)

    def _open(self) -> list[network.Connection]:
        return [found for one, other in self._links() for found in network.connections(one, other)]

    def _links(self) -> list[tuple[network.End, network.End]]:
        """Of the first target to the others. A coordinator connects to nobody, and may come back at the same port."""
        one, *others = self.targets
        if self.fault.cell.role == cells.CONTROL:
            return [(network.End(one.pid, 0), network.End(0, other.port)) for other in others]
        return [(one.end, other.end) for other in others]
