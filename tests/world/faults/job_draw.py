"""A `JobDraw` is a job and the faults that it meets, as a seed draws them."""

from dataclasses import dataclass, field, replace

from tests.world.faults.cells import REST, SCALE
from tests.world.gradients import DENSE

FOR_EVER = 1e6
"""Seconds."""

AT_ONCE, APART, COMBINED, OVERLAPPED = "pushpull", "push, pull", "combined", "overlapped"
"""Ways in which scripts make an exchange."""


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
    faults: tuple[Fault, ...] = field(default=())

    def has_overflow(self, step: int) -> bool:
        """Return whether gradients overflow in a step, counted from the first epoch's first."""
        return step * self.batch // self.samples in self.overflows

    def counts(self, version: int, tensor: int = 0) -> tuple[int, int]:
        """Return how often all samples count in a tensor of a version of a sync job, and how many once more."""
        whole, rest = divmod(version // self.stores * self.batch, self.samples)
        since = self.begins(tensor)
        if whole < since:
            return 0, 0
        return whole - since - len(self._overflows(since, whole)), 0 if whole in self.overflows else rest

    def uses(self, tensor: int) -> int:
        """Return how often each sample counts in a tensor at the job's end."""
        since = self.begins(tensor)
        return self.epochs - since - len(self._overflows(since, self.epochs))

    def begins(self, tensor: int) -> int:
        """Return from which epoch on there is a tensor."""
        return self.grows if tensor == self.tensors else 0

    def _overflows(self, since: int, until: int) -> list[int]:
        return [epoch for epoch in self.overflows if since <= epoch < until]

    def without(self, numbers: frozenset[int]) -> "JobDraw":
        """Return it without some of its faults."""
        return replace(self, faults=tuple(fault for fault in self.faults if fault.number not in numbers))
