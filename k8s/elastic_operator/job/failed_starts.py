"""A job that trains goes on without pods that cannot start: they are tried again, after pauses. Pure.

A pod belongs to the job when its node comes to belong to the configuration, not when that registers: it rehearses in
between. Before the job was whole, and when all start again for a restore, such an end is a death as any other. It is as
in `elastic_ps.launch.processes.failed_starts`; pauses are those of Kubernetes' own crash loops. A pod that its node
would not take (OutOfcpu, UnexpectedAdmissionError) costs nothing at any time: its script never ran. Servers do not wait
for workers that cannot start, nor workers for servers.
"""

from collections.abc import Mapping, Sequence

from dl2_scheduler.cluster import durations
from elastic_ps.core.configuration import Role
from k8s.elastic_operator.job.model import Counts, timestamp, unix
from k8s.elastic_operator.job.pods import Pod
from k8s.elastic_operator.job.reconciliation import JobDecisionDraft
from k8s.elastic_operator.job.report import CoordinatorReport

FIRST_PAUSE, LONGEST_PAUSE = 10.0, 300.0
"""Seconds, doubled in between."""
KEPT = 3
"""So many of them stay, the latest, for their logs: there is no bound to how many follow each other."""


def observe(draft: JobDecisionDraft, report: CoordinatorReport) -> None:
    """Note whether the job has been whole, and forget failures of pods when none of their role is awaited any more."""
    wanted, has, was = report.wanted, report.roster, draft.status.whole
    is_whole = bool(wanted) and has.workers >= wanted.workers and has.servers >= wanted.servers
    goes_on = report.phase == "rebuilding" or (report.phase == "running" and bool(has))
    draft.note(whole=(was or is_whole) and goes_on)
    all_start = was and not draft.status.whole

    def still(role: Role) -> int:
        awaited = not all_start and (report.starting.of(role) or report.joining)
        return draft.status.failed_starts.of(role) if awaited else 0

    failed = Counts(still(Role.WORKER), still(Role.SERVER))
    draft.note(failed_starts=failed, failed_start_time=draft.status.failed_start_time if failed != Counts() else "")


def set_aside(draft: JobDecisionDraft, report: CoordinatorReport, failed: Sequence[Pod]) -> Mapping[str, float]:
    """Note pods that cost the job nothing; return their names, with the seconds until others are tried.

    Args:
        draft: of the decision about the job.
        report: of the coordinator.
        failed: pods that have ended by themselves.
    """
    whole, before = draft.status.whole, draft.status.failed_starts
    found = [pod for pod in failed if pod.unstarted or (whole and not pod.joined and not report.has_joined(pod.name))]
    if found:
        counts = [before.of(role) + sum(pod.role is role for pod in found) for role in (Role.WORKER, Role.SERVER)]
        draft.note(failed_starts=Counts(*counts), failed_start_time=timestamp(draft.now))
    if draft.status.failed_starts != Counts():
        ended = [pod for pod in draft.nodes() if _never_joined(pod)]
        draft.delete(sorted(ended, key=lambda pod: int(pod.name.rpartition("-")[2]))[:-KEPT])
    return {pod.name: pause(draft, pod.role) for pod in found if pod.role is not None}


def pause(draft: JobDecisionDraft, role: Role) -> float:
    """Return the seconds until another pod of a role is started; 0: now."""
    count, last = draft.status.failed_starts.of(role), draft.status.failed_start_time
    if not count:
        return 0.0
    seconds = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(count - 1, 30))
    return durations.left(unix(last), seconds, draft.now)


def _never_joined(pod: Pod) -> bool:
    return not pod.joined and pod.phase in ("Failed", "Succeeded")
