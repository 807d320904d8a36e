"""A job that trains goes on without pods that cannot start: they are tried again, after pauses. Pure.

A pod belongs to the job when its node comes to belong to the configuration, not when that registers: it rehearses in
between. Before the job was whole, and when all start again for a restore, such an end is a death as any other. It is as
in `elastic_ps.launch.processes.failed_starts`; pauses are those of Kubernetes' own crash loops. A pod that its node
would not take (OutOfcpu, UnexpectedAdmissionError) costs nothing at any time: its script never ran.
"""

from collections.abc import Sequence

from k8s.elastic_operator.job.model import Pod, timestamp, unix
from k8s.elastic_operator.job.reconciliation import JobDecisionDraft
from k8s.elastic_operator.job.report import CoordinatorReport

FIRST_PAUSE, LONGEST_PAUSE = 10.0, 300.0
"""Seconds, doubled in between."""
KEPT = 3
"""So many of them stay, the latest, for their logs: there is no bound to how many follow each other."""


def observe(draft: JobDecisionDraft, report: CoordinatorReport) -> None:
    """Note whether the job has been whole, and forget failures of pods when none is awaited any more."""
    wanted, has, was = report.wanted, report.roster, draft.status.whole
    is_whole = bool(wanted) and has.workers >= wanted.workers and has.servers >= wanted.servers
    goes_on = report.phase == "rebuilding" or (report.phase == "running" and bool(has))
    draft.note(whole=(was or is_whole) and goes_on)
    awaited = report.starting.workers or report.starting.servers or report.joining
    if not awaited or (was and not draft.status.whole):
        draft.note(failed_starts=0, failed_start_time="")


def set_aside(draft: JobDecisionDraft, report: CoordinatorReport, failed: Sequence[Pod]) -> list[str]:
    """Note pods that cost the job nothing; return their names.

    Args:
        draft: of the decision about the job.
        report: of the coordinator.
        failed: pods that have ended by themselves.
    """
    whole = draft.status.whole
    found = [
        pod.name for pod in failed if pod.unstarted or (whole and not pod.joined and not report.has_joined(pod.name))
    ]
    if found:
        draft.note(failed_starts=draft.status.failed_starts + len(found), failed_start_time=timestamp(draft.now))
    if draft.status.failed_starts:
        ended = [pod for pod in draft.nodes() if pod.phase == "Failed" and not pod.joined]
        draft.delete(sorted(ended, key=lambda pod: int(pod.name.rpartition("-")[2]))[:-KEPT])
    return found


def pause(draft: JobDecisionDraft) -> float:
    """Return the seconds until another pod is started; 0: now."""
    status = draft.status
    if not status.failed_starts:
        return 0.0
    seconds = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(status.failed_starts - 1, 30))
    return max(0.0, unix(status.failed_start_time) + seconds - draft.now)
