"""The cells of the table: whom each kind of fault meets, in which phase, by the names of the simulated world."""

from dataclasses import dataclass

from tests.world.faults.cells import (
    BROKEN,
    COORDINATOR,
    DEATH,
    DELAY,
    DROP,
    FILLING,
    FREEZE,
    FULL,
    JUMP,
    KILL,
    LAUNCHER,
    LINKS,
    LOSE,
    MEMBERS,
    MOVERS,
    MOVING,
    PHASES,
    POWER,
    RESET,
    RESTORE,
    SERVER,
    SERVERLESS_LINKS,
    SERVERLESS_PHASES,
    STORAGE,
    WORKER,
)

PASSING = (DELAY, FULL, BROKEN)
"""Faults that always end by themselves, after `Fault.leases`."""

EITHER = (FREEZE, DROP)
"""Faults that end by themselves, or not."""

_PROCESSES = {
    WORKER: (KILL, FREEZE, JUMP),
    SERVER: (KILL, FREEZE, JUMP),
    COORDINATOR: (KILL, FREEZE, JUMP, LOSE, FULL, BROKEN, POWER),
    LAUNCHER: (FREEZE, JUMP),
    STORAGE: (FULL, BROKEN),
}

OF_DISKS = (FULL, BROKEN, POWER)
"""Faults that need a disk of the job's own, or one that fails at a word."""

_UNMET = ("worker-server", MOVERS, MEMBERS)
"""Links that are not there while a job restores: its new processes have yet to speak with each other."""

_UNSPOKEN = ("worker-coordinator", RESET)
"""Workers are held there before they speak with anybody."""

_UNWRITTEN = (STORAGE, BROKEN)
"""Nothing is written there while a job restores."""

_NEEDS_A_JOB = (LOSE,)
"""Nobody is left who knows the job, while it restores: its coordinator waits an hour."""


@dataclass(frozen=True, order=True)
class Cell:
    """One field of the table.

    Attributes:
        role: whose process, or whose link.
        phase: when.
        kind: of fault.
    """

    role: str
    phase: str
    kind: str

    @property
    def of_network(self) -> bool:
        """Whether it happens to a link."""
        return self.role in (*LINKS, *SERVERLESS_LINKS)

    @property
    def needs_replicas(self) -> bool:
        """Whether only a job whose blocks have followers has such a moment, or such a link at that moment."""
        return self.phase == FILLING or (self.role == MOVERS and self.phase not in MOVING)

    @property
    def needs_checkpoint(self) -> bool:
        """Whether its job needs one: it comes on top of a death, or the journal is lost, or it is about checkpoints."""
        return self.phase in (DEATH, FILLING, RESTORE) or self.kind == LOSE or self.role == STORAGE


def cells(room: bool, serverless: bool = False) -> list[Cell]:
    """Return every cell that can be hit.

    Args:
        room: with those that need a room of the job's own.
        serverless: of jobs without servers; else of those with some.
    """
    phases, links = ((*SERVERLESS_PHASES, RESTORE), SERVERLESS_LINKS) if serverless else (PHASES, LINKS)
    found = [
        Cell(role, phase, kind)
        for role, kinds in _PROCESSES.items()
        for kind in kinds
        for phase in phases
        if (room or kind not in (*OF_DISKS, JUMP)) and not (serverless and role == SERVER)
    ]
    if room:
        found += [Cell(role, phase, kind) for role in links for kind in (RESET, DROP, DELAY) for phase in phases]
    return [cell for cell in found if not _is_empty(cell)]


def _is_empty(cell: Cell) -> bool:
    if (cell.role, cell.phase) == (MEMBERS, DEATH):
        return True  # a job has two workers, and it is another one that dies
    if cell.phase != RESTORE:
        return False
    return cell.role in _UNMET or cell.kind in _NEEDS_A_JOB or (cell.role, cell.kind) in (_UNSPOKEN, _UNWRITTEN)
