"""What a fault does: to a process by signals, to a link by rules; and how one that passes is taken back."""

import errno
import os
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos import network
from tests.chaos.disturbed import DisturbedJob, Node, chosen, stopped, unregistered
from tests.chaos.draw import Fault
from tests.chaos.preload import Preload
from tests.world.faults.cells import (
    BROKEN,
    COORDINATOR,
    DELAY,
    FREEZE,
    FULL,
    JUMP,
    KILL,
    LAUNCHER,
    LOSE,
    MEMBERS,
    MOVERS,
    MOVING,
    POWER,
    RESET,
    SERVER,
    STORAGE,
    WORKER,
)

_JOINS = ("joining", "shadow")
_MEMBERS = ("member",)
_MOST_HOURS = 12
_JOURNAL = ("journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm", "ledger.jsonl", "steps.jsonl")


@dataclass
class Injection:
    """One fault that is made of a job.

    Args:
        job: that it happens to.
        fault: what is made.

    Attributes:
        targets: whom it met, once `choose` was called.
        protected: whether each block had a follower then.
    """

    job: DisturbedJob
    fault: Fault
    targets: list[Node] = field(default_factory=list)
    protected: bool = False
    _chance: random.Random = field(init=False)
    _connections: list[network.Connection] = field(default_factory=list)
    _rules: list[network.Rule] = field(default_factory=list)
    _broken: int = 0
    _failed: int = 0  # writes, before

    def __post_init__(self) -> None:
        self._chance = random.Random(self.fault.seed)

    def choose(self) -> tuple[list[Node], Callable[[], None]]:
        """Choose whom to meet, of those who are there now; returns them and what does it to them."""
        self.protected = self.job.is_protected(self.job.status())
        near, _, far = self.fault.cell.role.partition("-")
        if not far:
            self.targets = [self._one(near, self.fault.joiner)]
        elif self.fault.cell.role == MOVERS:
            self.targets = self._movers()
        elif self.fault.cell.role == MEMBERS:
            self.targets = self._pair()
        else:
            here = not self._joins_late
            self.targets = [self._one(near, self.fault.joiner and here), self._one(far, not self.fault.joiner and here)]
        if self.fault.cell.kind == RESET:
            self._connections = self._open()  # looked for now: the phase may last less than that takes
        return self.targets, self._make

    def undo(self) -> None:
        """Take back what can be: a stopped process goes on, a link's packets come through, the disk works."""
        if self.fault.cell.kind == FREEZE:
            with suppress(ProcessLookupError):
                os.kill(self.targets[0].pid, signal.SIGCONT)
        if self._rules:
            self._broken = network.lift(self._rules)
            self._rules = []
        elif self.fault.cell.kind == FULL:
            self._filler.unlink(missing_ok=True)
        elif self.fault.cell.kind == BROKEN:
            self._preload.fail(self._disk, False)

    @property
    def has_fired(self) -> bool:
        """Whether it met anything: packets that were dropped, connections that were reset, what was written."""
        if self.fault.cell.kind == BROKEN:
            return self._preload.failed(self._disk) > self._failed
        if not self.fault.cell.of_network:
            return True
        return self._broken > 0 or (bool(self._rules) and network.count_dropped(self._rules) > 0)

    def has_taken_effect(self, status: Any) -> bool:
        """Whether the job has noticed what never mends itself, or has no use for it any more.

        Args:
            status: of the job.
        """
        if not self.fault.costs_a_process:
            return True
        if self.fault.cell.role == COORDINATOR:
            return self.job.coordinator.pid != self.targets[0].pid
        if self.fault.cell.role == MOVERS and not self.job.replicas and not status.plan.id and not self._open():
            return True  # all had been handed over: without followers servers have nothing more to say to each other
        names = {node.member.id for node in status.nodes}
        return any(node.role in (WORKER, SERVER) and node.name not in names for node in self.targets)

    @property
    def _joins_late(self) -> bool:
        """Whether who joins has no links yet that could be reset."""
        return (self.fault.cell.phase, self.fault.cell.kind) == ("REGISTERED", RESET)

    @property
    def _disk(self) -> Path:
        return self.job.disk(self.fault.cell.role)

    @property
    def _filler(self) -> Path:
        return self._disk / "filler"

    @property
    def _preload(self) -> Preload:
        assert self.job.preload is not None, "the job's draw has such faults"
        return self.job.preload

    def _one(self, role: str, joiner: bool) -> Node:
        """One of a role: who joins, where that is wanted; processes that have yet to, where there are no others."""
        if role == LAUNCHER:
            return self.job.launcher
        if role in (COORDINATOR, STORAGE):
            return self.job.coordinator
        joining = self.job.nodes(role, _JOINS) if joiner else []
        known = joining or self.job.nodes(role, _MEMBERS) or self.job.nodes(role)
        return chosen(known or [unregistered(role, pid) for pid in self.job.waiting("hold-init")], self._chance)

    def _movers(self) -> list[Node]:
        """Return a server that joins and those that its blocks come from; else one and another."""
        linked = self.fault.cell.kind != RESET or self.fault.cell.phase in MOVING
        joining, members = self.job.nodes(SERVER, _JOINS) if linked else [], self.job.nodes(SERVER, _MEMBERS)
        one = chosen(joining or members, self._chance)
        others = [node for node in members if node.pid != one.pid]
        return [one, *others] if joining else [one, chosen(others, self._chance)]

    def _pair(self) -> list[Node]:
        """Return a worker, one that joins where that is wanted and it has links already, and the chief, or another.

        Two that are not the chief would meet at its store, and get new links.
        """
        joining = self.job.nodes(WORKER, _JOINS) if self.fault.joiner and not self._joins_late else []
        members = sorted(self.job.nodes(WORKER, _MEMBERS), key=lambda node: int(node.name[1:]))
        one = chosen(joining or members, self._chance)
        return [one, next(node for node in members if node.pid != one.pid)]

    def _make(self) -> None:
        kind = self.fault.cell.kind
        if kind == LOSE:
            self._lose_journal()
        elif kind == POWER:
            self._lose_power()
        elif kind == FULL:
            self._fill()
        elif kind == BROKEN:
            self._failed = self._preload.failed(self._disk)
            self._preload.fail(self._disk)
        elif kind == JUMP:
            self._preload.jump(self.targets[0].pid, self._hours() * 3600)
        elif kind in (KILL, FREEZE):
            os.kill(self.targets[0].pid, signal.SIGKILL if kind == KILL else signal.SIGSTOP)
        elif kind == RESET:
            self._broken = network.reset(self._connections or self._open())
        else:
            share = network.HALF if kind == DELAY else network.ALL
            self._rules = [
                rule for one, other in self._links() for rule in network.rules(one, other, self.fault.way, share)
            ]
            network.drop(self._rules)

    def _lose_journal(self) -> None:
        """Take the files of the coordinator away and kill it; what it writes in between goes with them."""
        folder = self.job.job.folder
        lost = folder / f"lost-{self.fault.number}"
        lost.mkdir(exist_ok=True)
        for name in _JOURNAL:
            with suppress(FileNotFoundError):
                (folder / name).rename(lost / name)
        os.kill(self.targets[0].pid, signal.SIGKILL)

    def _hours(self) -> int:
        return self._chance.choice((-1, 1)) * self._chance.randint(1, _MOST_HOURS)

    def _lose_power(self) -> None:
        """Take power from the coordinator's disk and end it, which sees nothing of that. The launcher looks later."""
        assert self.job.powered is not None, "the job's draw has such faults"
        with stopped(self.job.launcher.pid):
            os.kill(self.targets[0].pid, signal.SIGSTOP)
            self.job.powered.lose_power()
            os.kill(self.targets[0].pid, signal.SIGKILL)

    def _fill(self) -> None:
        """Write until the disk has no room."""
        with self._filler.open("wb", buffering=0) as filler:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        filler.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def _open(self) -> list[network.Connection]:
        return [found for one, other in self._links() for found in network.connections(one, other)]

    def _links(self) -> list[tuple[network.End, network.End]]:
        """Of the first target to the others. A coordinator connects to nobody, and may come back at the same port."""
        one, *others = self.targets
        if self.fault.cell.role == MEMBERS:
            return network.peers(one.pid, others[0].pid)
        if others and others[0].role == COORDINATOR:
            return [(network.End(one.pid, 0), network.End(0, other.port)) for other in others]
        return [(one.end, other.end) for other in others]
