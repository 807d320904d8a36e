"""Which faults a run makes: drawn from a seed, and nothing else decides it."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

WORKER, SERVER, COORDINATOR = "worker", "server", "coordinator"
EXCHANGE, FOLLOWING, CONTROL = "worker-server", "server-server", "node-coordinator"
REST, RESTORE = "rest", "restore"
PLAN_PHASES = ("REGISTERED", "ASSIGNED", "SYNCING", "ARMED")
PHASES = (REST, *PLAN_PHASES, RESTORE)

KILL, STOP, FREEZE = "kill", "stop", "freeze"  # SIGKILL; SIGSTOP for a while; SIGSTOP for ever
RESET, DROP, CUT = "reset", "drop", "cut"  # RST to both ends; one way drops for a while; one or both ways for ever
PASSING = (STOP, DROP)
"""Faults that end by themselves, after `Fault.leases`."""

LASTING = (KILL, FREEZE, CUT)
"""Faults that cost the job a process."""

_OF_LINKS = {
    EXCHANGE: {RESET: (REST, *PLAN_PHASES), DROP: PHASES, CUT: PHASES},
    FOLLOWING: {RESET: ("SYNCING", "ARMED"), DROP: ("ASSIGNED", "SYNCING"), CUT: ("ASSIGNED", "SYNCING")},
    CONTROL: {RESET: PHASES, DROP: PHASES, CUT: PHASES},
}
"""Where a link has something to lose: servers speak with each other while blocks move."""

_WAYS = {RESET: ("both",), DROP: ("out", "in"), CUT: ("out", "in", "both")}
_FAULTS_OF_A_JOB = 5
_LONG_LEASE_EVERY = 6
LEASE, LONG_LEASE = 3.0, 10.0
MODES = ("sync", "sync", "sync", "async", "ssp")


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
        return self.role in _OF_LINKS


@dataclass(frozen=True)
class Fault:
    """One fault to make.

    Attributes:
        number: in its run.
        cell: what, when and to whom.
        joiner: it meets a node that joins, where the phase has one.
        leases: that it lasts, where it passes.
        way: of a link's fault: "out" from the side that connects, "in" to it, or "both".
        seed: of further choices.
    """

    number: int
    cell: Cell
    joiner: bool = False
    leases: float = 0.0
    way: str = ""
    seed: int = 0

    def __str__(self) -> str:
        lasting = f" for {self.leases:.1f} leases" if self.leases else ""
        way = f" {self.way}" if self.way else ""
        return f"{self.number}: {self.cell.kind}{way} of {self.cell.role} at {self.cell.phase}{lasting}"


@dataclass(frozen=True)
class JobDraw:
    """One job and its faults, in turn.

    Attributes:
        number: in its run.
        mode: "sync", "async" or "ssp".
        transport: of tensors.
        lease: seconds.
        faults: to make.
    """

    number: int
    mode: str
    transport: str
    lease: float
    faults: tuple[Fault, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """As `from_json` takes it."""
        return asdict(self)

    @staticmethod
    def from_json(told: dict[str, Any]) -> "JobDraw":
        """Read what `to_json` wrote."""
        faults = tuple(Fault(**{**fault, "cell": Cell(**fault["cell"])}) for fault in told["faults"])
        return JobDraw(**{**told, "faults": faults})


def cells(network: bool) -> list[Cell]:
    """Return every cell that can be hit; network: links' too."""
    found = [
        Cell(role, phase, kind)
        for role in (WORKER, SERVER, COORDINATOR)
        for phase in PHASES
        for kind in (KILL, STOP, FREEZE)
    ]
    if network:
        found += [
            Cell(role, phase, kind)
            for role, kinds in _OF_LINKS.items()
            for kind, phases in kinds.items()
            for phase in phases
        ]
    return found


def draw(seed: int, count: int, network: bool) -> list[JobDraw]:
    """Draw `count` faults and the jobs that they happen to.

    No cell comes a second time before all have come once, so a run of as many faults as there are cells meets each.
    """
    chance = random.Random(seed)
    faults = [
        _fault(number, cell, chance) for number, cell in zip(range(count), _endless(network, chance), strict=False)
    ]
    of_links = [fault for fault in faults if fault.cell.of_network]
    of_processes = [fault for fault in faults if not fault.cell.of_network]
    groups = [*_groups(of_links), *_groups(of_processes)]
    chance.shuffle(groups)
    return [_job(number, group, chance) for number, group in enumerate(groups)]


def _endless(network: bool, chance: random.Random) -> Iterator[Cell]:
    while True:
        some = cells(network)
        chance.shuffle(some)
        yield from some


def _fault(number: int, cell: Cell, chance: random.Random) -> Fault:
    return Fault(
        number,
        cell,
        joiner=chance.random() < 0.5,
        leases=round(chance.uniform(0.5, 4.0), 2) if cell.kind in PASSING else 0.0,
        way=chance.choice(_WAYS[cell.kind]) if cell.of_network else "",
        seed=chance.getrandbits(32),
    )


def _groups(faults: Sequence[Fault]) -> list[tuple[Fault, ...]]:
    return [tuple(faults[at : at + _FAULTS_OF_A_JOB]) for at in range(0, len(faults), _FAULTS_OF_A_JOB)]


def _job(number: int, faults: tuple[Fault, ...], chance: random.Random) -> JobDraw:
    """A link's packets can be dropped where they are TCP's: not those of shared memory."""
    of_network = any(fault.cell.of_network for fault in faults)
    transport = "tcp" if of_network else chance.choice(("auto", "tcp"))
    lease = LONG_LEASE if number % _LONG_LEASE_EVERY == _LONG_LEASE_EVERY - 1 else LEASE
    return JobDraw(number, chance.choice(MODES), transport, lease, faults)
