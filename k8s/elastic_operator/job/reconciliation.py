"""This module has what one reconciliation sees of a job, and drafts what it decides."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from elastic_ps.core.configuration import Role
from k8s.elastic_operator.job.actions import Action, DeletePod, Start, StartCoordinator, StartNode, WriteEvent
from k8s.elastic_operator.job.model import CAUSE, Counts, Desired
from k8s.elastic_operator.job.pods import Pod
from k8s.elastic_operator.job.report import CoordinatorReport
from k8s.elastic_operator.job.status import ElasticJobStatus


@dataclass(frozen=True)
class CheckpointSaving:
    """A `CheckpointSaving` is a checkpoint that was asked for.

    Attributes:
        term: of the coordinator that was asked.
        url: of it, when it is written.
        error: why it could not be written.
    """

    term: int
    url: str = ""
    error: str = ""

    @property
    def under_way(self) -> bool:
        """Return whether it is still being written."""
        return not self.url and not self.error


@dataclass(frozen=True)
class ApiVerdict:
    """An `ApiVerdict` is what the API server says of the job's pods before any is made.

    Attributes:
        generation: of the document that it judged.
        reason: one word; "": it takes them.
        message: its sentence.
        again: seconds until it is asked once more.
    """

    generation: int
    reason: str = ""
    message: str = ""
    again: float = 0.0


@dataclass(frozen=True)
class ApiDenial:
    """An `ApiDenial` names pods that the API server would not make, as where a quota is used up.

    Attributes:
        message: its sentence.
        starts: what was refused, and what was not tried since then.
        again: seconds until it is tried once more; 0: now.
        unsure: the first of them may have been made all the same: its answer tells of a fault.
    """

    message: str
    starts: tuple[Start, ...]
    again: float = 0.0
    unsure: bool = False

    @property
    def reason(self) -> str:
        """The sentence, with what it is about."""
        about = "quota" if "exceeded quota" in self.message else "the API server refuses"
        return f"{about}: {self.message}"

    def numbers(self, role: Role) -> list[int]:
        """Return the numbers of pods of a role that were given out and never used."""
        return [start.number for start in self.starts if isinstance(start, StartNode) and start.role is role]

    @property
    def coordinator(self) -> StartCoordinator | None:
        """Return the coordinator's start, if that was refused."""
        return next((start for start in self.starts if isinstance(start, StartCoordinator)), None)


@dataclass(frozen=True)
class ObservedJob:
    """An `ObservedJob` is a job as it is.

    Attributes:
        status: as it was last written.
        pods: all of the job's.
        report: of the coordinator; None: it does not answer.
        silent: seconds since it last did, or since somebody began to listen.
        refused: numbers that it would not take a moment ago, and why.
        saving: the checkpoint that was asked for, if any.
        claim: phase of the claim of a coordinator that is not placed; "": nobody has looked.
        verdict: of the API server about the job's pods; None: it has not been asked, or a while ago.
        prepared: generation of the document for which this operator has made what pods need; 0: for none yet.
        denied: pods that it would not make a moment ago.
        stranger: why the coordinator does not take this operator for the job's; "": it does.
        trouble: what the last reconciliation broke on; "": nothing.
    """

    status: ElasticJobStatus = field(default_factory=ElasticJobStatus)
    pods: tuple[Pod, ...] = ()
    report: CoordinatorReport | None = None
    silent: float = 0.0
    refused: tuple[Counts, str] | None = None
    saving: CheckpointSaving | None = None
    claim: str = ""
    verdict: ApiVerdict | None = None
    prepared: int = 0
    denied: ApiDenial | None = None
    stranger: str = ""
    trouble: str = ""


@dataclass(frozen=True)
class OperatorDecision:
    """An `OperatorDecision` says what to do about a job.

    Attributes:
        actions: in this order, after `status` has been written.
        status: to write; its `reason` says why.
        again: seconds until another look is due though nothing has changed; None: none.
    """

    actions: tuple[Action, ...]
    status: ElasticJobStatus
    again: float | None = None


class JobDecisionDraft:
    """A `JobDecisionDraft` collects what one reconciliation decides about a job.

    Args:
        seen: the job as it is.
        desired: as it shall be.
        now: unix seconds.

    Attributes:
        status: as it is to be written.
        actions: asked for so far.
        again: seconds until another look is due; None: none.
    """

    def __init__(self, seen: ObservedJob, desired: Desired, now: float):
        self.seen, self.desired, self.now = seen, desired, now
        self.status = seen.status
        self.actions: list[Action] = []
        self.again: float | None = None

    @property
    def report(self) -> CoordinatorReport | None:
        """Return what the coordinator says."""
        return self.seen.report

    @property
    def saving(self) -> CheckpointSaving | None:
        """The checkpoint that was asked for; one of an earlier coordinator lacks what was trained since."""
        saving, report = self.seen.saving, self.report
        return None if saving is not None and report is not None and saving.term < report.term else saving

    @property
    def coordinator(self) -> Pod | None:
        """The coordinator's pod; None: there is none."""
        return next((pod for pod in self.seen.pods if pod.role is None), None)

    def nodes(self, role: Role | None = None) -> list[Pod]:
        """Return the pods of workers and servers, or of one of these roles."""
        return [pod for pod in self.seen.pods if pod.role is not None and role in (None, pod.role)]

    @property
    def alive(self) -> list[Pod]:
        """The pods that run, or will."""
        return [pod for pod in self.seen.pods if pod.alive]

    @property
    def ended_by_us(self) -> bool:
        """Return whether the job is over because the operator wanted so."""
        return self.report is not None and self.report.ended and self.report.reason.startswith(CAUSE)

    def note(self, **values: Any) -> None:
        """Change fields of the status."""
        self.status = replace(self.status, **values)

    def set_condition(self, kind: str, value: bool, reason: str, message: str = "") -> None:
        """Set a condition of the status.

        Args:
            kind: type of the condition.
            value: whether it is true.
            reason: one word, in camel case.
            message: for people.
        """
        self.status = self.status.with_condition(kind, value, reason, self.now, message)

    def drop_condition(self, kind: str) -> None:
        """Leave a condition out of the status: it says nothing of this job."""
        self.note(conditions={name: each for name, each in self.status.conditions.items() if name != kind})

    def act(self, *actions: Action) -> None:
        """Ask for actions."""
        self.actions += actions

    def write_event(self, reason: str, message: str, warning: bool = False) -> None:
        """Ask for an event on the object.

        Args:
            reason: one word, in camel case.
            message: for people.
            warning: rather than normal.
        """
        self.act(WriteEvent(reason, message, warning))

    def delete(self, pods: Iterable[Pod]) -> None:
        """Ask for the end of pods that nobody has deleted yet, and of the objects of those that are lost."""
        self.act(*(DeletePod(pod.name, pod.lost) for pod in pods if pod.lost or not pod.deleting))

    def start(self, role: Role, number: int) -> None:
        """Ask for a worker's or server's pod."""
        self.act(StartNode(role, number, self.status.server_bytes if role is Role.SERVER else 0))

    def look_again(self, seconds: float) -> None:
        """Ask for another look in at most so many seconds."""
        self.again = seconds if self.again is None else min(self.again, seconds)

    def decision(self) -> OperatorDecision:
        """Return all that was decided."""
        return OperatorDecision(tuple(self.actions), self.status, self.again)
