"""This module keeps as many workers and servers as the coordinator wants, and replaces the dead. Pure."""

from collections.abc import Mapping

from elastic_ps.core.configuration import Role
from elastic_ps.core.crash_loop import has_worked
from elastic_ps.core.script_hints import HOW_TO_JOIN
from k8s.elastic_operator.job import failed_starts
from k8s.elastic_operator.job.actions import KILLED, DeletePod, LabelPod, RequestScale, StopJob, TellExit
from k8s.elastic_operator.job.ending import fail
from k8s.elastic_operator.job.model import CAUSE, Counts, timestamp, unix
from k8s.elastic_operator.job.pods import Pod
from k8s.elastic_operator.job.reconciliation import JobDecisionDraft
from k8s.elastic_operator.job.report import CoordinatorReport


def mourn(draft: JobDecisionDraft, report: CoordinatorReport) -> bool:
    """Count the pods that have died, and tell the coordinator.

    Those that the cluster has taken (their node is lost, they were evicted, somebody removed them) are replaced as
    often as it happens; those that ended by themselves, `retryLimit` times in a row; of these, those that had not
    joined a job which trains without them, after pauses.

    Returns:
        Whether the job may go on.
    """
    failed_starts.observe(draft, report)
    present = {pod.name for pod in draft.nodes()}
    dead = {pod.name: _how(pod) for pod in draft.nodes() if _has_died(draft, report, pod)}
    frozen = [pod.name for pod in draft.nodes() if pod.staying and report.has_expelled(pod.name)]
    dead |= {
        name: "it was evicted" if report.has_evicted(name) else "it was silent or cut off for too long"
        for name in frozen
    }
    draft.act(*(DeletePod(name, at_once=True) for name in frozen))
    owners = {nonce: nonce.rpartition(".")[0] for nonce in report.members}
    dead |= {pod: "its pod is gone" for pod in owners.values() if pod and pod not in present}
    well = {pod.name for pod in draft.nodes() if pod.phase == "Succeeded"}
    draft.act(
        *(
            TellExit(nonce, report.members[nonce], 0 if pod in well else KILLED)
            for nonce, pod in owners.items()
            if pod in dead
        )
    )
    draft.act(*(DeletePod(pod.name, at_once=True) for pod in draft.nodes() if pod.lost))
    draft.delete(pod for pod in draft.nodes() if pod.lingers and not pod.lost and pod.name in dead)
    counted = draft.status.counted
    fresh = [name for name in dead if name not in counted]
    taken = {pod.name for pod in draft.nodes() if pod.lost or pod.disrupted or report.has_evicted(pod.name)}
    failed = [name for name in fresh if name in present and name not in taken]
    draft.note(
        restarts=draft.status.restarts + len(fresh),
        counted=(*(name for name in counted if name in present or name in dead), *fresh),
    )
    aside = failed_starts.set_aside(draft, report, [pod for pod in draft.nodes() if pod.name in failed])
    failed = [name for name in failed if name not in aside]
    if failed:
        _count(draft, len(failed), report.version)
    for name in fresh:
        draft.write_event("NodeDied", f"{name}: {dead[name]}{_tried(aside, name)}", warning=True)
    limit = draft.desired.retry_limit
    if draft.status.failures <= limit:
        return True
    if failed:
        why = f"{failed[-1]}: {dead[failed[-1]]}; retryLimit {limit} has been used up"
        draft.act(StopJob(f"{CAUSE}: {why}"))
        fail(draft, why)
    return not failed


def _tried(aside: Mapping[str, float], name: str) -> str:
    if name not in aside:
        return ""
    return f"; it had not joined: the job goes on, and another one is tried in {aside[name]:.0f} s"


def _count(draft: JobDecisionDraft, failed: int, version: int) -> None:
    """Note pods that ended by themselves; the row of them begins anew where the job has worked since the last."""
    status = draft.status
    last = unix(status.failure_time) if status.failure_time else draft.now
    is_over = status.failures <= draft.desired.retry_limit and has_worked(
        last, status.failure_version, draft.now, version
    )
    draft.note(
        failures=failed + (0 if is_over else status.failures),
        failure_time=timestamp(draft.now),
        failure_version=max(version, status.failure_version),
    )


def _has_died(draft: JobDecisionDraft, report: CoordinatorReport, pod: Pod) -> bool:
    if pod.lost or (pod.phase == "Failed" and not pod.deleting):
        return True
    if pod.phase != "Succeeded":
        return False
    if pod.member:  # of a job that was never whole it may have joined, trained and ended since the report
        return draft.status.whole and not (pod.joined or pod.deleting) and report.awaits(pod.name)
    awaited = pod.role is not None and report.starting.of(pod.role) > 0 and not pod.deleting
    return not draft.status.trained or (draft.status.whole and awaited)


def _how(pod: Pod) -> str:
    if pod.lost:
        return f"node {pod.node} does not answer"
    if pod.phase == "Succeeded":
        return f"it ended without having joined the job; {HOW_TO_JOIN}"
    how = f"exit status {pod.exit_status}" if pod.exit_status is not None else "failed"
    return f"{how}: {pod.trouble}" if pod.trouble else how


def match(draft: JobDecisionDraft, report: CoordinatorReport, want: Counts) -> None:
    """Ask for other numbers where they differ; start and end pods as the coordinator wants.

    Args:
        draft: of the decision about the job.
        report: of the coordinator.
        want: the counts that the document wants.
    """
    if report.phase == "rebuilding":  # it does not know yet whom it has
        if not any(pod.staying for pod in draft.nodes()):  # nobody is left that could tell it: new ones show that
            for role in (Role.SERVER, Role.WORKER):
                _start(draft, role, report.wanted.of(role))
        return
    _scale(draft, report, want)
    for pod in draft.nodes():
        member, joined = report.member(pod.name), pod.joined or report.has_joined(pod.name)
        if member and (member, joined) != (pod.member, pod.joined):
            draft.act(LabelPod(pod.name, member, joined))
    for role in (Role.SERVER, Role.WORKER):
        _match(draft, report, role)


def _scale(draft: JobDecisionDraft, report: CoordinatorReport, want: Counts) -> None:
    refused = draft.seen.refused
    if report.wanted == want:
        done = report.roster == want
        draft.set_condition("Scaled", done, "AsWanted" if done else "UnderWay", report.plan)
    elif refused is not None and refused[0] == want:
        draft.set_condition("Scaled", False, "Refused", refused[1])
    else:
        draft.set_condition("Scaled", False, "Asked", want.words)
        draft.act(RequestScale(want, draft.desired.cause))


def _match(draft: JobDecisionDraft, report: CoordinatorReport, role: Role) -> None:
    pods = draft.nodes(role)
    pending = [
        pod
        for pod in pods
        if pod.staying
        and not report.member(pod.name)
        and not report.has_expelled(pod.name)
        and not (pod.member and pod.member in report.left)
    ]
    wanted = report.starting.of(role)
    if report.phase == "restoring":  # processes of all pods end, and come back in their pods
        pending, wanted = [pod for pod in pods if pod.staying], report.wanted.of(role)
    _start(draft, role, wanted - len(pending))
    draft.delete(sorted(pending, key=_number)[wanted:])
    if report.phase == "running":  # those of a job that ends are kept, for their logs
        draft.delete(pod for pod in pods if pod.phase == "Succeeded" and pod.member in report.left)


def _start(draft: JobDecisionDraft, role: Role, count: int) -> None:
    """Ask for pods. Numbers of those that the API server would not make are taken again, later and later."""
    denied = draft.seen.denied
    if denied is not None and denied.again > 0:
        draft.look_again(denied.again)
        return
    if count > 0 and (rest := failed_starts.pause(draft, role)) > 0:
        draft.look_again(rest)
        return
    numbers = denied.numbers(role) if denied is not None else []
    for place in range(count):
        if place < len(numbers):
            draft.start(role, numbers[place])
            continue
        created = draft.status.created
        number = created.of(role) + 1
        workers, servers = (number, created.servers) if role is Role.WORKER else (created.workers, number)
        draft.note(created=Counts(workers, servers))
        draft.start(role, number)


def _number(pod: Pod) -> int:
    return int(pod.name.rpartition("-")[2])
