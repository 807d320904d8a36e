"""What workers do in the model: collectives, switches, and what they do when they hear a directive."""

from collections.abc import Iterator
from dataclasses import replace

from elastic_ps.core.errors import JobEnded
from elastic_ps.torch.allreduce.agreement import LACKS, HeldVersion, agree
from tests.allreduce_model.job import BrokenError, Job, Scope, Told, with_worker
from tests.allreduce_model.shadow import begin_to_follow, end_streams, feed, switch, switch_if_due


def is_member(job: Job, who: int) -> bool:
    current = job.workers[who].current
    return current >= 0 and who in job.rosters[current]


# ---- collectives -----------------------------------------------------------------------------------------------------


def begin(scope: Scope, job: Job, who: int) -> Iterator[tuple[str, Job]]:
    """Contribute to the next collective: the agreement of a fresh group, else the step's sum."""
    worker = job.workers[who]
    if worker.fresh and scope.has("agree_first"):
        op = (worker.current, "agree", 0)
    elif worker.held < scope.steps:
        op = (worker.current, "sum", max(worker.held, 0))
    else:
        return
    said = (op, who, (worker.held, worker.keeps, worker.proven, worker.history))
    job = end_streams(job, who) if op[1] == "agree" else job
    yield f"w{who} begins {op}", replace(with_worker(job, who, replace(worker, op=op)), said=job.said | {said})


def end(scope: Scope, job: Job, who: int) -> Iterator[tuple[str, Job]]:
    worker = job.workers[who]
    assert worker.op is not None
    number, kind, _ = worker.op
    roster = job.rosters[number]
    said = {member: what for op, member, what in job.said if op == worker.op}
    if len(said) == len(roster):
        if kind == "sum":
            yield f"w{who} has the sum of step {worker.held}", _apply(scope, job, who, number)
        else:
            yield f"w{who} agrees", _agreed(scope, job, who, [said[member] for member in roster])
    if any(not job.workers[m].alive or job.workers[m].left or job.workers[m].current > number for m in roster):
        yield f"w{who}'s group {number} fails", with_worker(job, who, replace(worker, op=None, failed=True))


def _apply(scope: Scope, job: Job, who: int, number: int) -> Job:
    worker = job.workers[who]
    history = (*worker.history, number)
    settled = len(worker.history) if scope.has("report_settled") else len(history)
    job = _report(job, history, settled)
    worker = replace(worker, op=None, held=len(history), history=history, keeps=True)
    return switch_if_due(feed(with_worker(job, who, worker), who), who)


def _agreed(scope: Scope, job: Job, who: int, said: list[Told]) -> Job:
    """Hold what all members have agreed on; records and states are given with the contributions."""
    worker = job.workers[who]
    held = [version for version, _, _, _ in said]
    if not scope.has("nobody_goes_back"):
        held = [min(held)] * len(held)
    proven = [proven or not scope.has("shadows_do_not_go_on_alone") for _, _, proven, _ in said]
    try:
        found = agree(list(map(HeldVersion, held, [keeps for _, keeps, _, _ in said], proven)))
    except JobEnded:
        return with_worker(job, who, replace(worker, alive=False, op=None))
    history = said[found.giver][3][: found.version]
    rank = job.rosters[worker.current].index(who)
    keeps = worker.keeps if rank not in found.states else False
    before = min((version for version in held if version >= 0), default=0)
    job = _report(job, history, before if scope.has("settle_what_was_held") else found.version)
    worker = replace(worker, op=None, fresh=False, held=found.version, history=history, proven=True)
    return with_worker(job, who, replace(worker, keeps=keeps or rank in found.records))


def _report(job: Job, history: tuple[int, ...], settled: int) -> Job:
    """Tell the ledger what is settled; what was told once stays."""
    for version, number in enumerate(history[:settled]):
        if version < len(job.reported):
            if job.reported[version] != number:
                raise BrokenError(f"the ledger has step {version} by configuration {job.reported[version]}")
        else:
            job = replace(job, reported=(*job.reported, number))
    return job


# ---- directives ------------------------------------------------------------------------------------------------------


def hear(scope: Scope, job: Job, who: int) -> Job:
    worker = job.workers[who]
    (kind, number, clock), rest = worker.inbox[0], worker.inbox[1:]
    worker = replace(worker, inbox=rest)
    plan = job.plan if job.plan is not None and job.plan.target == number else None
    if kind == "prepare":
        worker = replace(worker, prepared=number, clock=-1)
        if not worker.proven and plan is not None and not plan.is_death:
            worker = begin_to_follow(job, worker, number)
        job = with_worker(job, who, worker)
        return replace(job, plan=replace(plan, prepared=plan.prepared | {who})) if plan else job
    if kind == "cancel":
        if worker.prepared == number:
            worker = replace(worker, prepared=-1, clock=-1)
            worker = (
                worker if worker.proven else replace(worker, source=-1, sent=(), ended=False, held=LACKS, history=())
            )
        return with_worker(job, who, worker)
    if kind == "adopt":
        job = with_worker(job, who, worker)
        return switch(job, who) if worker.prepared == number else job
    if worker.prepared != number or plan is None:  # arm, of a configuration that is in force here, or is none
        return with_worker(job, who, worker)
    if worker.held > clock and scope.has("late_is_armed_again"):
        return replace(with_worker(job, who, replace(worker, clock=-1)), plan=replace(plan, late=True))
    job = with_worker(job, who, replace(worker, clock=clock))
    return replace(job, plan=replace(plan, armed=plan.armed | {who}))
