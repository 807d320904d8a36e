"""A `JobDraw` is a job and the faults that it meets, as a seed draws them."""

from dataclasses import dataclass, field, replace
from math import prod

from tests.world.faults.cells import REST, SCALE
from tests.world.gradients import DENSE

FOR_EVER = 1e6
"""Seconds."""

AT_ONCE, APART, COMBINED, OVERLAPPED = "pushpull", "push, pull", "combined", "overlapped"
"""Ways in which scripts make an exchange."""

ASYNC = "async"
"""The mode of a job whose workers share no steps."""

SHORT, DROPPED, WRAPPED = "short", "drop", "wrap"
"""What becomes of the samples at an epoch's end that make no whole batch."""

BY_UPDATES, BY_STEP = "updates", "step"
"""How a script says the optimizer's rate: as a function of the number of updates, or anew in each step."""

PRELOADED = 3, 2.0
"""Updates of each tensor, and sums of squares, of a job before."""

_BYTES = {"float16": 2, "float32": 4, "float64": 8}

_RATES = 1.0, 2.0
_STEPS_OF_A_RATE = 7


@dataclass(frozen=True)
class Fault:
    """A fault, or an operator's wish, and when it comes.

    Attributes:
        number: in its job.
        kind: of it.
        role: whom it meets; of a link, one end.
        phase: in which phase of the job.
        after: seconds after the one before, at least.
        lasts: seconds, where it passes.
        choice: decides among those whom it may meet.
        workers: that are wanted, of a scaling.
        servers: that are wanted, of a scaling.
        deep: in which phase of its own the plan of a death, or of first followers, is then; "": in any.
    """

    number: int
    kind: str
    role: str = ""
    phase: str = REST
    after: float = 0.0
    lasts: float = 0.0
    choice: int = 0
    workers: int = 0
    servers: int = 0
    deep: str = ""

    def __str__(self) -> str:
        lasting = "" if not self.lasts else " for ever" if self.lasts == FOR_EVER else f" for {self.lasts:.2f} s"
        goal = f" to {self.workers} workers, {self.servers} servers" if self.kind == SCALE else ""
        phase = f"{self.phase}, {self.deep}" if self.deep else self.phase
        return f"{self.number}: {self.kind} {self.role}{goal} at {phase} after {self.after:.2f} s{lasting}"


@dataclass(frozen=True)
class JobDraw:
    """A job and what happens to it: all that a world needs beside its seed.

    Attributes:
        apart: each fault waits until the job has got over the one before.
        norm: servers, or members, wait for the factor that the norm of all gradients decides: 1, or 0.
        overflows: epochs in whose steps a gradient overflows, so that all skip them.
        serverless: it has no servers: its workers all-reduce.
        static: its script draws its own batches, so that workers that are gone stay so.
        follows: workers that join one without servers follow a member, as its optimizer counts as one of torch.optim.
        saves: it has checkpoints, as all jobs with servers have.
        meets: its script has barriers: at the end of each epoch, and in a sync job in every second step.
        early: gradients of some tensors leave while those of others are made.
        stores: key stores of its script, each of which makes an exchange in each step.
        adaptive: its optimizer keeps sums of squares: a sample's n-th use makes its parameter larger by 1 / sqrt(n).
        statistic: workers average a running statistic, to which each step adds one.
        collects: scripts collect the optimizer's states now and then, and in a sync job load them again.
        grows: from which epoch on there is one more tensor; 0: it stays as it is.
        commands: the chief has servers run a command at the end of each epoch.
        way: in which scripts make an exchange.
        breaks: scripts leave their loop over the sampler now and then, and begin another.
        last: what becomes of the samples at an epoch's end that make no whole batch. See `Sampler`.
        given: an epoch has the order of the data set, no permutation.
        mean: gradients are averaged over samples, not summed.
        freezes: for how many steps tensors are left out, and for as many pushed again; 0: they never are.
        schedule: by what the optimizer's rate goes, one of `BY_UPDATES` and `BY_STEP`; "": it stays as it is.
        retransmits: see `Network`.
        preloads: scripts load the optimizer's states as a job before has saved them, `PRELOADED`, in their first step.
        kinds: of tensors, in turn: the elements of each sample's entry (0: it is no axis), and their type.
        devices: on which each worker has a part of its gradients.
        spare_epochs: that the script's loop has more than `epochs`, behind which it stops.
        evaluates: scripts pull all values at the end of each epoch, and report.
        lingers: seconds that scripts take at most, now and then, before their first step, between epochs, at their end.
        hosts: on which the processes run; those of one host share memory, where `hosts` is 0 nobody does.
    """

    seed: int
    mode: str = "sync"
    workers: int = 1
    servers: int = 1
    samples: int = 40
    batch: int = 8
    epochs: int = 1
    tensors: int = 2
    staleness: int = 0
    block_bytes: int = 64
    migration: str = "live"
    lease: float = 3.0
    checkpoint_interval: float = 2.0
    latency: tuple[float, float] = (0.0005, 0.002)
    pace: tuple[float, float] = (0.02, 0.06)
    room: int = 1 << 16
    switches: float = 0.0
    slow: float = 0.0
    gradients: str = DENSE
    replicas: int = 0
    apart: bool = False
    hosts: int = 0
    norm: bool = False
    overflows: frozenset[int] = frozenset()
    serverless: bool = False
    static: bool = False
    follows: bool = False
    saves: bool = True
    meets: bool = False
    early: bool = False
    stores: int = 1
    adaptive: bool = False
    statistic: bool = False
    collects: bool = False
    grows: int = 0
    commands: bool = False
    way: str = AT_ONCE
    breaks: bool = False
    last: str = SHORT
    given: bool = False
    mean: bool = False
    freezes: int = 0
    schedule: str = ""
    retransmits: bool = False
    preloads: bool = False
    kinds: tuple[tuple[int, str], ...] = ((0, "float32"),)
    devices: int = 1
    spare_epochs: int = 0
    evaluates: bool = False
    lingers: float = 0.0
    faults: tuple[Fault, ...] = field(default=())

    @property
    def steps_per_epoch(self) -> int:
        """The steps of an epoch."""
        whole, rest = divmod(self.samples, self.batch)
        return whole + (1 if rest and self.last != DROPPED else 0)

    @property
    def steps(self) -> int:
        """The steps of the job."""
        return self.epochs * self.steps_per_epoch

    @property
    def positions(self) -> int:
        """How many positions of its order an epoch uses, some samples twice where it ends with those of its start."""
        return self.samples if self.last == SHORT else self.steps_per_epoch * self.batch

    @property
    def scale(self) -> int:
        """The factor on the optimizer's rate by which averaged gradients count as much as summed ones."""
        return self.batch if self.mean else 1

    def has_overflow(self, step: int) -> bool:
        """Return whether gradients overflow in a step, counted from the first epoch's first."""
        return step // self.steps_per_epoch in self.overflows

    def begins(self, tensor: int) -> int:
        """Return from which epoch on there is a tensor."""
        return self.grows if tensor == self.tensors else 0

    def kind_of(self, tensor: int) -> tuple[tuple[int, ...], str]:
        """Return the shape and the type of a tensor."""
        width, dtype = self.kinds[tensor % len(self.kinds)]
        return (self.samples, width) if width else (self.samples,), dtype

    @property
    def model_bytes(self) -> int:
        """The bytes of all tensors."""
        kinds = [self.kind_of(tensor) for tensor in range(self.tensors)]
        return sum(prod(shape) * _BYTES[dtype] for shape, dtype in kinds)

    def is_preloaded(self, tensor: int) -> bool:
        """Return whether scripts load the optimizer's state of a tensor: that of a new one comes too late."""
        return self.preloads and tensor < self.tensors

    def leaves_out(self, tensor: int, step: int) -> bool:
        """Return whether scripts push no gradient of a tensor in a step; the first one has always some."""
        return bool(self.freezes and tensor) and (step // self.freezes + tensor) % 2 == 0

    def store_of(self, tensor: int) -> int:
        """Return the number of the key store that has a tensor."""
        return 0 if tensor < self.tensors // self.stores else self.stores - 1

    def rate(self, number: int) -> float:
        """Return the optimizer's rate after so many updates, or steps."""
        return _RATES[number // _STEPS_OF_A_RATE % 2] if self.schedule else _RATES[0]

    def without(self, numbers: frozenset[int]) -> "JobDraw":
        """Return it without some of its faults."""
        return replace(self, faults=tuple(fault for fault in self.faults if fault.number not in numbers))
