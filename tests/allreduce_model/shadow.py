"""What a shadow does in the model: it follows a member until that has switched, and switches itself."""

from collections.abc import Iterator
from dataclasses import replace

from elastic_ps.torch.allreduce.agreement import LACKS
from tests.allreduce_model.job import Job, Scope, Worker, with_worker


def begin_to_follow(job: Job, shadow: Worker, number: int) -> Worker:
    """Return a shadow that begins to follow a member which stays."""
    staying = [who for who in job.rosters[number] if job.workers[who].proven]
    source = staying[-1] if staying else -1
    sent = job.workers[source].history if staying and _gives(job, source) else ()
    return replace(shadow, source=source, sent=sent, ended=False, held=LACKS, history=())


def _gives(job: Job, who: int) -> bool:
    member = job.workers[who]
    return member.alive and not member.left and member.held >= 0


def feed(job: Job, who: int) -> Job:
    """Send those who follow `who` what it has come to hold."""
    for number, shadow in enumerate(job.workers):
        if shadow.source == who and not shadow.ended:
            job = with_worker(job, number, replace(shadow, sent=job.workers[who].history))
    return job


def end_streams(job: Job, who: int) -> Job:
    """Let `who`, which has switched, send no more."""
    for number, shadow in enumerate(job.workers):
        if shadow.source == who:
            job = with_worker(job, number, replace(shadow, ended=True))
    return job


def can_be_armed(job: Job, who: int) -> bool:
    """Return whether a worker that joins would have said SYNCED: it has caught up, or its stream has failed."""
    source = job.workers[who].source
    return source < 0 or job.workers[source].held >= 0


def follow(scope: Scope, job: Job, who: int) -> Iterator[tuple[str, Job]]:
    """Yield what a shadow may do: switch by its clock, come to the end, break off."""
    shadow = job.workers[who]
    if shadow.source < 0:
        return
    if shadow.prepared >= 0 and 0 <= shadow.clock <= len(shadow.sent):
        yield f"w{who} follows to its clock", switch(job, who)
    if shadow.ended:
        yield f"w{who} has followed to the end", with_worker(job, who, _holds(shadow, shadow.sent))
    source = job.workers[shadow.source]
    if not source.alive or source.left or job.cuts < scope.cuts:
        cut = replace(job, cuts=job.cuts + (source.alive and not source.left))
        for version in range(len(shadow.sent) + 1):
            broken = _holds(shadow, shadow.sent[:version])
            yield f"w{who}'s stream breaks off at version {version}", with_worker(cut, who, broken)
        torn = replace(_holds(shadow, ()), held=LACKS)
        yield f"w{who}'s stream breaks off within a record", with_worker(cut, who, torn)


def _holds(shadow: Worker, history: tuple[int, ...]) -> Worker:
    """Return a shadow whose stream is over."""
    return replace(shadow, source=-1, sent=(), ended=False, held=len(history), history=history)


def switch_if_due(job: Job, who: int) -> Job:
    worker = job.workers[who]
    return switch(job, who) if worker.prepared >= 0 and 0 <= worker.clock <= worker.held else job


def switch(job: Job, who: int) -> Job:
    worker = job.workers[who]
    number = worker.prepared
    left = who not in job.rosters[number]
    switched = replace(worker, current=number, prepared=-1, clock=-1, fresh=True, op=None, failed=False, left=left)
    job = with_worker(job, who, switched)
    plan = job.plan
    if plan is not None and plan.target == number:
        job = replace(job, plan=replace(plan, switched=plan.switched | {who}))
    return job
