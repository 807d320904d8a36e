"""What came of one fault."""

from dataclasses import dataclass

from tests.chaos.draw import Fault, JobDraw


@dataclass(frozen=True)
class Result:
    """What came of one fault.

    Attributes:
        number: of the fault.
        role: whose process or link.
        phase: when.
        kind: of fault.
        lasting: one that could pass, and does not.
        job: its number.
        mode: of the job.
        transport: of the job.
        lease: of the job, seconds.
        fault: in words.
        met: whom.
        replicas: of the job's blocks.
        protected: each block had a follower when the fault came, and nothing else was wrong.
        restored: why the job went back to its checkpoint, where it did.
        outcome: "recovered", "restored" (a protected job, for one fault), "hung", "ended", "unproved", or "missed": it
            could not be made.
        noticed: seconds from the fault until who is lost by it for good was out of the job; None: nobody is.
        trained: seconds from the fault until steps went on for good; 0: they never stood for a second.
        stood: the longest time without a step, seconds.
        whole: seconds until the job was as it was wanted, and nobody was left of those that it had lost.
        plan: how the plan that was hit has ended, "" without one.
        planned: seconds until it had ended.
        why: of an outcome that is not "recovered".
    """

    number: int
    role: str
    phase: str
    kind: str
    job: int
    mode: str
    transport: str
    lease: float
    replicas: int
    fault: str
    lasting: bool = False
    met: str = ""
    protected: bool = False
    restored: str = ""
    outcome: str = "recovered"
    noticed: float | None = None
    trained: float | None = None
    stood: float | None = None
    whole: float | None = None
    plan: str = ""
    planned: float | None = None
    why: str = ""

    @property
    def name(self) -> str:
        """Of its kind: one that could pass and does not has one of its own."""
        return f"{self.kind} for ever" if self.lasting else self.kind


def bound(lease: float) -> float:
    """Seconds from a fault's end after which a job that is not whole is called hung, where the machine is not slow."""
    return 60.0 + 6 * lease


def blank(draw: JobDraw, fault: Fault) -> Result:
    """A result that is still to be had."""
    cell = fault.cell
    return Result(
        number=fault.number,
        role=cell.role,
        phase=cell.phase,
        kind=cell.kind,
        job=draw.number,
        mode=draw.mode,
        transport=draw.transport,
        lease=draw.lease,
        replicas=draw.replicas,
        fault=str(fault),
        lasting=fault.kind != cell.kind,
    )
