"""The cells of the coverage table: whom each kind of fault meets, in which phase of the job, and which cannot be."""

from itertools import product

WORKER, SERVER, COORDINATOR, LAUNCHER = "worker", "server", "coordinator", "launcher"
STORAGE = "storage"
"""Where checkpoints lie."""

KILL, FREEZE, RESET, DROP, DELAY, POWER, LOSE = "kill", "freeze", "reset", "drop", "delay", "power", "lose"
"""SIGKILL; SIGSTOP, and SIGCONT after a while; RST to both ends; one way drops for a while, or is slow (so may storage
be); the coordinator's machine loses power; the coordinator dies and its journal is gone."""

VANISH = "vanish"
"""The machine of a process is gone: nothing that it sent and nobody has read arrives, and no end of a connection. The
coordinator's is the launcher's, too."""

FULL, BROKEN, JUMP = "full", "broken", "jump"
"""ENOSPC or EIO of whatever is written for a while, to the coordinator's folder or to the storage of checkpoints; a
process's clocks jump."""

SCALE, DRAIN, SAVE = "scale", "drain", "save"
"""What an operator asks for."""

OPERATOR = (SCALE, DRAIN, SAVE)

REST, PLAN_PHASES, RESTORE = "rest", ("REGISTERED", "ASSIGNED", "SYNCING", "ARMED"), "restore"
DEATH, FILLING = "death", "filling"
"""A plan without the dead is under way; one that makes followers for blocks which have none."""

PHASES = (REST, *PLAN_PHASES, DEATH, FILLING, RESTORE)
"""PLAN_PHASES are those of all other plans."""

MOVERS, MOVING = "server-server", ("SYNCING", "ARMED")
"""Servers have connections with each other while blocks move, and where blocks have followers."""

LINKS = ("worker-server", MOVERS, "worker-coordinator", "server-coordinator", "launcher-coordinator")

CELLS: dict[str, tuple[str, ...]] = {
    KILL: (WORKER, SERVER, COORDINATOR),
    VANISH: (WORKER, SERVER),
    FREEZE: (WORKER, SERVER, COORDINATOR, LAUNCHER),
    POWER: (COORDINATOR,),
    LOSE: (COORDINATOR,),
    RESET: LINKS,
    DROP: LINKS,
    DELAY: (*LINKS, STORAGE),
    FULL: (COORDINATOR, STORAGE),
    BROKEN: (COORDINATOR, STORAGE),
    JUMP: (WORKER, SERVER, COORDINATOR, LAUNCHER),
    SCALE: ("",),
    DRAIN: (WORKER, SERVER),
    SAVE: ("",),
}
"""Whom each kind may meet; "": the job."""

ROWS = tuple((kind, role) for kind, roles in CELLS.items() for role in roles)
"""Of the coverage table."""

MEMBERS = "worker-worker"
"""Workers of a job without servers have connections with each other: of their group, and to the chief's store."""

SERVERLESS_LINKS = (MEMBERS, "worker-coordinator", "launcher-coordinator")

SERVERLESS_CELLS: dict[str, tuple[str, ...]] = {
    KILL: (WORKER, COORDINATOR),
    VANISH: (WORKER,),
    FREEZE: (WORKER, COORDINATOR, LAUNCHER),
    POWER: (COORDINATOR,),
    LOSE: (COORDINATOR,),
    RESET: SERVERLESS_LINKS,
    DROP: SERVERLESS_LINKS,
    DELAY: SERVERLESS_LINKS,
    FULL: (COORDINATOR,),
    BROKEN: (COORDINATOR,),
    JUMP: (WORKER, COORDINATOR, LAUNCHER),
    SCALE: ("",),
    DRAIN: (WORKER,),
}
"""Whom each kind may meet in a job without servers."""

SERVERLESS_ROWS = tuple((kind, role) for kind, roles in SERVERLESS_CELLS.items() for role in roles)

SERVERLESS_PHASES = (REST, *PLAN_PHASES, DEATH)

Cell = tuple[str, str, str]
"""Role, phase, kind."""

IMPOSSIBLE: dict[Cell, str] = {
    (COORDINATOR, RESTORE, LOSE): "no node is left that knows the job: its coordinator waits an hour for one",
}
"""Cells that no seed can hit, and why."""


def possible(serverless: bool = False) -> list[Cell]:
    """Return every cell that some seed can hit, of jobs with servers or of those without."""
    rows, phases = (SERVERLESS_ROWS, SERVERLESS_PHASES) if serverless else (ROWS, PHASES)
    every = [(role, phase, kind) for (kind, role), phase in product(rows, phases)]
    return [cell for cell in every if cell not in IMPOSSIBLE]
