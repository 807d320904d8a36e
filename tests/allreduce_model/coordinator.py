"""What the coordinator does in the model: it plans, arms, decides, commits, and mourns."""

from collections.abc import Iterator
from dataclasses import replace

from tests.allreduce_model.job import Job, Plan, Scope, send
from tests.allreduce_model.shadow import can_be_armed


def decide(scope: Scope, job: Job) -> Iterator[tuple[str, Job]]:
    plan = job.plan
    if not job.planned and plan is None and not job.known_dead and any(worker.held >= 0 for worker in job.workers):
        yield "the coordinator plans", _plan(scope, job)
    for who, worker in enumerate(job.workers):
        if not worker.alive and who not in job.known_dead:
            yield f"the coordinator hears that w{who} is dead", _mourn(scope, job, who)
    if plan is None:
        return
    waited = {who for who in plan.audience if who not in job.known_dead}
    joining = waited - set(job.rosters[job.in_force]) if not plan.is_death else set()
    if plan.phase == "ASSIGNED" and waited <= plan.prepared and all(can_be_armed(job, who) for who in joining):
        if plan.is_death:
            adopting = replace(job, plan=replace(plan, phase="ARMED", decided=True))
            yield "all are prepared: adopt", send(adopting, plan.audience, ("adopt", plan.target, -1))
        else:
            newest = max(worker.held for worker in job.workers)
            for clock in (newest, newest + 1):
                arming = replace(job, plan=replace(plan, phase="ARMED", clock=clock))
                yield f"arm at {clock}", send(arming, plan.audience, ("arm", plan.target, clock))
    elif plan.phase == "ARMED" and not plan.decided:
        if plan.switched and scope.has("adopt_the_rest"):
            rest = frozenset(plan.audience - plan.switched)
            deciding = replace(job, plan=replace(plan, decided=True))
            yield "somebody has switched: adopt", send(deciding, rest, ("adopt", plan.target, -1))
        elif plan.late:
            clock = max(worker.held for worker in job.workers) + 1
            arming = replace(job, plan=replace(plan, late=False, clock=clock, armed=frozenset()))
            yield f"late: arm at {clock}", send(arming, plan.audience, ("arm", plan.target, clock))
    elif plan.phase == "ARMED" and waited <= plan.switched:
        yield "commit", replace(job, plan=None, in_force=plan.target)


def _plan(scope: Scope, job: Job) -> Job:
    roster = [who for who in job.rosters[job.in_force] if who != scope.leaves]
    roster += [len(job.workers) - 1] if scope.joins else []
    audience = frozenset(job.rosters[job.in_force]) | frozenset(roster)
    planned = replace(job, planned=True, rosters=(*job.rosters, tuple(roster)))
    planned = replace(planned, plan=Plan(len(planned.rosters) - 1, False, audience))
    assert planned.plan is not None
    return send(planned, audience, ("prepare", planned.plan.target, -1))


def _mourn(scope: Scope, job: Job, who: int) -> Job:
    """Take the dead off what is, or may be, in force; a plan that has not been armed is cancelled."""
    plan, dead = job.plan, job.known_dead | {who}
    job = replace(job, known_dead=dead)
    armed = plan is not None and plan.phase == "ARMED"
    base, audience = job.in_force, frozenset(job.rosters[job.in_force])
    if plan is not None and (armed or plan.is_death):
        audience |= plan.audience
    if plan is not None and armed and scope.has("death_builds_on_armed"):
        base = plan.target
    elif plan is not None and not armed and scope.has("one_plan"):
        job = send(job, plan.audience, ("cancel", plan.target, -1))
    if plan is not None and plan.is_death and not armed:
        base = plan.target
    roster = tuple(member for member in job.rosters[base] if member not in dead)
    if not roster:
        return replace(job, plan=None, lost=True)
    job = replace(job, rosters=(*job.rosters, roster))
    number = len(job.rosters) - 1
    alive = frozenset(member for member in audience | set(roster) if member not in dead)
    alive = frozenset(member for member in alive if not job.workers[member].left)
    return send(replace(job, plan=Plan(number, True, alive)), alive, ("prepare", number, -1))
