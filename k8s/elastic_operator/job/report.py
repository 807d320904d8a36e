"""This module reads what a job's coordinator says of the job into plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coordinator.ctl.text_columns import protection_text, transports
from k8s.elastic_operator.job.model import Body, Counts, timestamp
from protos import elastic_pb2 as pb


@dataclass(frozen=True)
class ReportedProtection:
    """A `ReportedProtection` says whether the job outlives the death of any one server.

    Attributes:
        cause: in one word, why some of it does not; "": all of it does.
        text: for people.
    """

    cause: str
    text: str


@dataclass(frozen=True)
class CoordinatorReport:
    """A `CoordinatorReport` is what the coordinator says of its job.

    Attributes:
        phase: rebuilding, starting, running, restoring, finished, failed.
        reason: of the phase.
        term: of the coordinator.
        wanted: numbers that it goes for.
        starting: nodes that are to be started, beyond those that have registered.
        members: id of a node by the name of its process, of all that are registered.
        joining: ids of those of `members` that do not belong to the configuration in force.
        leaving: ids of those that end by themselves, as they were told.
        roster: members that are in force.
        version: steps of training.
        epoch: with the part of it that is done.
        samples_per_epoch: 0: not known.
        samples_per_second: of the job.
        metrics: what the script reports.
        transport: how tensors travel, in words; "": nobody has told yet.
        fallback: why, where that is second choice.
        plan: under way, in words; "": none.
        plans: those that have ended, oldest first.
        left: ids of nodes that plans have let go.
        expelled: names of processes that the job goes on without though nobody saw them end.
        evicted: those of them that a person wanted to go.
        server_bytes: parameters that the largest server holds; 0: not known.
        rebuilt: the coordinator had no journal, and knows the job from its nodes.
        checkpoint: URL of the newest; "": none yet.
        unsaved: why the last one that was tried came to nothing; "": it did not.
        protection: None where the job asks for no replicas, or has ended.
    """

    phase: str = "starting"
    reason: str = ""
    term: int = 1
    wanted: Counts = field(default_factory=Counts)
    starting: Counts = field(default_factory=Counts)
    members: Mapping[str, str] = field(default_factory=dict)
    joining: frozenset[str] = frozenset()
    leaving: frozenset[str] = frozenset()
    roster: Counts = field(default_factory=Counts)
    version: int = 0
    epoch: float = 0.0
    samples_per_epoch: float = 0.0
    samples_per_second: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    transport: str = ""
    fallback: str = ""
    plan: str = ""
    plans: tuple[Body, ...] = ()
    left: frozenset[str] = frozenset()
    expelled: frozenset[str] = frozenset()
    evicted: frozenset[str] = frozenset()
    server_bytes: int = 0
    rebuilt: bool = False
    checkpoint: str = ""
    unsaved: str = ""
    protection: ReportedProtection | None = None

    @property
    def ended(self) -> bool:
        """Return whether the job is over."""
        return self.phase in ("finished", "failed")

    def member(self, pod: str) -> str:
        """Return the id of a pod's node; "": it has not registered, or is gone."""
        return next((node for nonce, node in self.members.items() if nonce.rpartition(".")[0] == pod), "")

    def has_joined(self, pod: str) -> bool:
        """Return whether a pod's node belongs to the configuration in force."""
        member = self.member(pod)
        return bool(member) and member not in self.joining

    def awaits(self, pod: str) -> bool:
        """Return whether a pod's node has registered, and is to join the configuration in force."""
        return self.member(pod) in self.joining - self.leaving

    def has_expelled(self, pod: str) -> bool:
        """Return whether a pod's process was expelled, and no later one of the pod has registered."""
        return not self.member(pod) and any(nonce.rpartition(".")[0] == pod for nonce in self.expelled)

    def has_evicted(self, pod: str) -> bool:
        """Return whether a person wanted a process of the pod to go."""
        return any(nonce.rpartition(".")[0] == pod for nonce in self.evicted)

    @staticmethod
    def of(wanted: pb.Wanted, status: pb.StatusReply, plans: Sequence[pb.Plan]) -> "CoordinatorReport":
        """Read the coordinator's messages.

        Args:
            wanted: what decides.
            status: for people.
            plans: for people.
        """
        inside = [node for node in status.nodes if node.rank >= 0]
        phase = ("failed" if wanted.failed else "finished") if wanted.ended else status.phase
        phase = "restoring" if wanted.restarting and not wanted.ended else phase
        transport, fallback = transports(status)
        return CoordinatorReport(
            phase=phase,
            reason=wanted.reason or status.reason,
            term=status.term,
            wanted=Counts(wanted.workers, wanted.servers),
            starting=Counts(wanted.starting_workers, wanted.starting_servers),
            members=dict(zip(wanted.nonces, wanted.nodes, strict=True)),
            joining=frozenset(wanted.joining),
            leaving=frozenset(wanted.leaving),
            expelled=frozenset(wanted.expelled),
            evicted=frozenset(wanted.evicted),
            roster=Counts(*(sum(node.member.role == role for node in inside) for role in (pb.WORKER, pb.SERVER))),
            version=status.version,
            epoch=_epoch(status),
            samples_per_epoch=float(status.data.samples),
            samples_per_second=status.rate,
            metrics=_metrics(status),
            transport=transport,
            fallback=fallback,
            plan=f"{status.plan.phase}: {status.plan.cause}" if status.HasField("plan") else "",
            plans=tuple(_plan(plan) for plan in plans if plan.ended),
            left=frozenset(node for plan in plans for node in plan.left),
            server_bytes=max((node.bytes for node in inside if node.member.role == pb.SERVER), default=0),
            rebuilt=status.rebuilt,
            checkpoint=status.checkpoint,
            unsaved=status.unsaved,
            protection=_protection(status),
        )


def _protection(status: pb.StatusReply) -> ReportedProtection | None:
    if not status.HasField("protection"):
        return None
    return ReportedProtection(status.protection.cause, protection_text(status))


def _epoch(status: pb.StatusReply) -> float:
    """Return the epochs that are done, so finely that how fast an epoch of days trains is known within a slot."""
    steps = -(-status.data.samples // status.data.global_batch) if status.data.global_batch else 0
    return round(status.epoch + (min(1.0, status.step / steps) if steps else 0.0), 6)


def _metrics(status: pb.StatusReply) -> dict[str, float]:
    """Return the metrics of all nodes; where several have one, the chief's, and last of all of those who have left."""
    found: dict[str, float] = {}
    for node in sorted(status.nodes, key=lambda node: (node.rank >= 0, -node.rank)):
        found.update(node.metrics)
    return found


def _plan(plan: pb.Plan) -> dict[str, Any]:
    """Return a plan that has ended, as `status.plans` has it."""
    steps = ("registration", "assignment", "migration", "update")
    return {
        "id": plan.id,
        "phase": plan.phase,
        "cause": plan.cause,
        "reason": plan.reason,
        "joined": list(plan.joined),
        "left": list(plan.left),
        "seconds": round(plan.ended - plan.started, 3),
        "steps": {name: round(spent / 1000, 4) for name, spent in zip(steps, plan.steps_ms, strict=False)},
        "suspension": round(max(plan.suspension_ms.values(), default=0.0) / 1000, 4),
        "bytesMoved": plan.bytes_moved,
        "ended": timestamp(plan.ended),
    }
