"""This module has the status of an ElasticJob: what people read, and the little that the operator remembers there."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from k8s.elastic_operator.job.model import Body, Counts, timestamp

WAITING, STARTING, RUNNING = "Waiting", "Starting", "Running"
SUSPENDING, SUSPENDED = "Suspending", "Suspended"
COMPLETED, FAILED = "Completed", "Failed"
ENDED = (COMPLETED, FAILED)
MOST_PLANS = 10
_LONGEST = 1024


@dataclass(frozen=True)
class Condition:
    """A `Condition` tells one aspect of the job, as `kubectl wait --for=condition=` reads it.

    Attributes:
        type: as the CRD lists them.
        status: True, False.
        reason: one word.
        message: for people.
        since: of its present status, RFC 3339.
    """

    type: str
    status: str
    reason: str
    message: str = ""
    since: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return the condition as the API server has it."""
        names = {"type": self.type, "status": self.status, "reason": self.reason, "message": self.message}
        return names | {"lastTransitionTime": self.since}


@dataclass(frozen=True)
class ElasticJobStatus:
    """An `ElasticJobStatus` is `status` of the object, whose fields are in camelCase there.

    Attributes:
        phase: "": nobody has looked at the job yet.
        reason: of the phase, or why it waits.
        conditions: by type.
        workers: in force.
        servers: in force.
        epoch: with the part of it that is done.
        samples_per_epoch: 0: not known yet.
        samples_per_second: now.
        metrics: the last that the script reported.
        transport: of tensors; where it is not the one that was asked for, why.
        plan: under way, in words.
        plans: the last that have ended.
        term: given to the coordinator's pod at its last start.
        restarts: dead pods that were replaced.
        failures: of these, those that ended by themselves in a row, which `retryLimit` bounds.
        failure_time: of the last of them.
        failure_version: the highest that the job had reached by then.
        coordinator_restarts: of the container of its pod, when it was last heard.
        whole: the job has had all that it wanted at once, since it started last.
        failed_starts: pods in a row, by role, that ended by themselves before they belonged to the job, which trained.
        failed_start_time: of the last of them.
        start_time: of the first pods.
        completion_time: of the end.
        selector: of the workers' pods, for /scale.
        coordinator: its service.
        observed_generation: of the document that this answers.
        checkpoint: URL of the last checkpoint that a suspension made.
        trained: whether there is anything that could be lost.
        created: the highest number given to a pod, by role.
        server_bytes: parameters that the largest server holds, or held last.
        counted: names of dead pods that are in `restarts`.
        forecast: when it starts and ends; the scheduler writes it, and the operator leaves it as it is.
    """

    phase: str = ""
    reason: str = ""
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    workers: int = 0
    servers: int = 0
    epoch: float = 0.0
    samples_per_epoch: float = 0.0
    samples_per_second: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    transport: str = ""
    plan: str = ""
    plans: tuple[Body, ...] = ()
    term: int = 0
    restarts: int = 0
    failures: int = 0
    failure_time: str = ""
    failure_version: int = 0
    coordinator_restarts: int = 0
    whole: bool = False
    failed_starts: Counts = field(default_factory=Counts)
    failed_start_time: str = ""
    start_time: str = ""
    completion_time: str = ""
    selector: str = ""
    coordinator: str = ""
    observed_generation: int = 0
    checkpoint: str = ""
    trained: bool = False
    created: Counts = field(default_factory=Counts)
    server_bytes: int = 0
    counted: tuple[str, ...] = ()
    forecast: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(body: Body) -> "ElasticJobStatus":
        """Read the status of the API server's object."""
        found = dict(body.get("status") or {})
        given: dict[str, Any] = {}
        for one in fields(ElasticJobStatus):
            if (value := found.get(_camel(one.name))) is not None:
                given[one.name] = value
        if "conditions" in given:
            given["conditions"] = {
                one["type"]: Condition(
                    one["type"], one["status"], one["reason"], one.get("message", ""), one["lastTransitionTime"]
                )
                for one in given["conditions"]
            }
        for name in {"created", "failed_starts"} & given.keys():
            given[name] = Counts(given[name].get("workers", 0), given[name].get("servers", 0))
        for name in ("plans", "counted"):
            given[name] = tuple(given.get(name, ()))
        return ElasticJobStatus(**given)

    def to_dict(self) -> dict[str, Any]:
        """Return the status as the API server has it; what is empty is left out, but for counts."""
        kept = {"workers", "servers", "restarts", "phase"}
        values: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)}
        values["conditions"] = [one.to_dict() for one in self.conditions.values()]
        values["created"] = _by_role(self.created) if self.term else {}
        values["failed_starts"] = _by_role(self.failed_starts) if self.failed_starts != Counts() else {}
        values["plans"], values["counted"] = list(self.plans), list(self.counted)
        values["metrics"], values["forecast"] = dict(self.metrics), dict(self.forecast)
        return {_camel(name): value for name, value in values.items() if value or name in kept}

    def with_condition(self, kind: str, value: bool, reason: str, now: float, message: str = "") -> "ElasticJobStatus":
        """Return the status with one condition set, whose time changes with its status only.

        Args:
            kind: type of the condition.
            value: whether it is true.
            reason: one word, in camel case.
            now: unix seconds.
            message: for people.
        """
        status = str(value)
        before = self.conditions.get(kind)
        since = before.since if before is not None and before.status == status else timestamp(now)
        found = Condition(kind, status, reason, message[:_LONGEST], since)
        return replace(self, conditions={**self.conditions, kind: found})

    def condition(self, kind: str) -> bool:
        """Return whether a condition is true."""
        return kind in self.conditions and self.conditions[kind].status == "True"


_PROGRESS = ("epoch", "samples_per_second", "metrics")


def is_progress(old: ElasticJobStatus, new: ElasticJobStatus) -> bool:
    """Return whether the only difference is how far training has come, which may be told less often."""
    return replace(new, **{name: getattr(old, name) for name in _PROGRESS}) == old


def _by_role(counts: Counts) -> dict[str, int]:
    return {"workers": counts.workers, "servers": counts.servers}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)
