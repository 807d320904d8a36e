"""What a seed draws: faults, and the jobs that they happen to. Nothing else decides it."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.chaos.cells import EITHER, PASSING, Cell, cells
from tests.world.faults.cells import DROP, FILLING, KILL, LAUNCHER, LOSE, POWER, RESET

_WAYS = {RESET: ("both",), DROP: ("out", "in", "both")}
_FAULTS_OF_A_JOB = 8
_LONG_LEASE_EVERY = 6
LEASE, LONG_LEASE = 3.0, 10.0
MODES = ("sync", "sync", "sync", "async", "ssp")
ALL_REDUCE = "all-reduce"
_PROTECTED = 0.6
"""Of jobs, that have followers; half of these have no checkpoints."""


@dataclass(frozen=True)
class Fault:
    """One fault to make.

    Attributes:
        number: in its run.
        cell: what, when and to whom.
        joiner: it meets a node that joins, where the phase has one.
        leases: that it lasts, where it passes; 0: for ever, where it could pass.
        way: of a link's fault: "out" from the side that connects, "in" to it, or "both".
        seed: of further choices.
    """

    number: int
    cell: Cell
    joiner: bool = False
    leases: float = 0.0
    way: str = ""
    seed: int = 0

    @property
    def kind(self) -> str:
        """In words: one that could pass and does not is called so."""
        return f"{self.cell.kind} for ever" if self.cell.kind in EITHER and not self.leases else self.cell.kind

    @property
    def costs_a_process(self) -> bool:
        """Whether who is met must leave the job, if it has a lease to keep."""
        return self.cell.kind in (KILL, LOSE, POWER) or (self.cell.kind in EITHER and not self.leases)

    def __str__(self) -> str:
        lasting = f" for {self.leases:.1f} leases" if self.leases else ""
        way = f" {self.way}" if self.way else ""
        return f"{self.number}: {self.kind}{way} of {self.cell.role} at {self.cell.phase}{lasting}"


@dataclass(frozen=True)
class JobDraw:
    """One job and its faults, in turn.

    Attributes:
        number: in its run.
        mode: "sync", "async", "ssp" or "all-reduce".
        transport: of tensors; of gloo "tcp".
        lease: seconds.
        servers: at rest.
        replicas: of each block.
        checkpoints: whether it saves any.
        faults: to make.
    """

    number: int
    mode: str
    transport: str
    lease: float
    servers: int = 2
    replicas: int = 0
    checkpoints: bool = True
    faults: tuple[Fault, ...] = field(default=())

    @property
    def serverless(self) -> bool:
        """Whether it has no servers."""
        return self.mode == ALL_REDUCE

    @property
    def kinds(self) -> set[str]:
        """Of its faults."""
        return {fault.cell.kind for fault in self.faults}

    @property
    def of_network(self) -> bool:
        """Whether links of it are hit."""
        return any(fault.cell.of_network for fault in self.faults)

    def __str__(self) -> str:
        copies = f", replicas {self.replicas}" if self.replicas else ""
        saved = "" if self.checkpoints else ", no checkpoint"
        return f"{self.mode} {self.transport} {self.lease:g} s{copies}{saved}"

    def to_json(self) -> dict[str, Any]:
        """As `from_json` takes it."""
        return asdict(self)

    @staticmethod
    def from_json(told: dict[str, Any]) -> "JobDraw":
        """Read what `to_json` wrote."""
        faults = tuple(Fault(**{**fault, "cell": Cell(**fault["cell"])}) for fault in told["faults"])
        return JobDraw(**{**told, "faults": faults})


@dataclass(frozen=True, order=True)
class _Sort:
    """What jobs a fault needs: only faults of one sort share a job."""

    of_network: bool
    replicas: int
    servers: int
    checkpoints: bool


def draw(seed: int, count: int, room: bool, serverless: bool = False) -> list[JobDraw]:
    """Draw `count` faults and the jobs that they happen to, all with servers or all without.

    No cell comes a second time before all have come once, so a run of as many faults as there are cells meets each.
    """
    chance = random.Random(seed)
    some = zip(range(count), _endless(room, serverless, chance), strict=False)
    faults = [_fault(number, cell, chance) for number, cell in some]
    by_sort: dict[_Sort, list[Fault]] = {}
    for fault in faults:
        by_sort.setdefault(_sort(fault.cell, serverless, chance), []).append(fault)
    groups = [(sort, some) for sort, every in sorted(by_sort.items()) for some in _groups(every)]
    chance.shuffle(groups)
    return [_job(number, sort, group, chance) for number, (sort, group) in enumerate(groups)]


def _endless(room: bool, serverless: bool, chance: random.Random) -> Iterator[Cell]:
    while True:
        some = cells(room, serverless)
        chance.shuffle(some)
        yield from some


def _fault(number: int, cell: Cell, chance: random.Random) -> Fault:
    passes = cell.kind in PASSING or (cell.kind in EITHER and (_never_dies(cell) or chance.random() < 0.5))
    return Fault(
        number,
        cell,
        joiner=chance.random() < 0.5,
        leases=round(chance.uniform(0.5, 4.0), 2) if passes else 0.0,
        way=chance.choice(_WAYS.get(cell.kind, ("out", "in"))) if cell.of_network else "",
        seed=chance.getrandbits(32),
    )


def _never_dies(cell: Cell) -> bool:
    """Nobody would replace a launcher."""
    return LAUNCHER in cell.role


def _sort(cell: Cell, serverless: bool, chance: random.Random) -> _Sort:
    if serverless:
        return _Sort(cell.of_network, 0, 0, cell.needs_checkpoint or chance.random() < 0.5)
    replicas = int(cell.needs_replicas or chance.random() < _PROTECTED)
    checkpoints = cell.needs_checkpoint or not replicas or chance.random() < 0.5
    return _Sort(cell.of_network, replicas, 3 if cell.phase == FILLING else 2, checkpoints)


def _groups(faults: Sequence[Fault]) -> list[tuple[Fault, ...]]:
    return [tuple(faults[at : at + _FAULTS_OF_A_JOB]) for at in range(0, len(faults), _FAULTS_OF_A_JOB)]


def _job(number: int, sort: _Sort, faults: tuple[Fault, ...], chance: random.Random) -> JobDraw:
    """A link's packets can be dropped where they are TCP's: not those of shared memory."""
    transport = "tcp" if sort.of_network or not sort.servers else chance.choice(("auto", "tcp"))
    lease = LONG_LEASE if number % _LONG_LEASE_EVERY == _LONG_LEASE_EVERY - 1 else LEASE
    mode = chance.choice(MODES) if sort.servers else ALL_REDUCE
    return JobDraw(number, mode, transport, lease, sort.servers, sort.replicas, sort.checkpoints, faults)
