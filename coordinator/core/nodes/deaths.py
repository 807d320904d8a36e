"""Deaths of members, and their scripts' ends: the others agree on a table without them (docs/protocol.md, "A plan")."""

from dataclasses import replace

from coordinator.core.checkpoints.ending import collapse
from coordinator.core.plans.lifecycle import cancel
from coordinator.core.plans.next_configuration import static_reason
from coordinator.core.plans.plan import Kind, Phase, Plan
from coordinator.core.plans.transitions import Trigger, advance
from coordinator.core.state import Job, Round
from coordinator.core.step_context import Turn
from elastic_ps.core.configuration import ConfigId, Configuration, Member, NodeId

GRACE_SECONDS = 5.0
"""How long others may still be at work when a script has ended, until it is taken to have ended early."""


def retire(turn: Turn) -> bool:
    """Scripts have ended and others go on, which may wait for them in a step: they leave as the dead do."""
    job = turn.job
    ranks = job.configuration.ranks.keys() if job.configuration is not None else frozenset()
    over = (job.finished & ranks) - job.dead
    if not over or turn.now < turn.state.finished_at + GRACE_SECONDS or ranks <= job.finished | job.dead:
        return False
    for name in over:
        turn.node(name, left=True)
    goal = replace(job.goal, workers=max(1, job.goal.workers - len(over)))
    turn.durable(dead=turn.job.dead | over, goal=goal)
    turn.log(f"{', '.join(sorted(over))} ended while others train: they go on alone")
    return True


def mourn(turn: Turn) -> bool:
    """Members have died: the survivors agree on a table without them."""
    job, plan = turn.job, turn.job.plan
    if job.dead <= (plan.dead if plan is not None else frozenset()):
        return False
    if plan is not None and plan.phase is Phase.ARMED and not job.is_sync:
        return False  # decided, and nobody's switch waits for the dead: it is committed first
    base = job.configuration
    absorbed: tuple[Plan, ...] = ()
    clock = None
    if plan is not None and plan.phase is Phase.ARMED:  # its outcome stands: the dead are taken off the new table
        absorbed, clock = (*plan.absorbed, replace(plan, absorbed=())), plan.clock
    elif plan is not None:
        absorbed, clock = plan.absorbed, plan.clock
        turn.replan(absorbed=())
        cancel(turn, _cause(job))
    floor = absorbed[-1].target if absorbed else base
    assert floor is not None, "only members of a table can be mourned"
    workers = tuple(worker for worker in floor.workers if worker.id not in job.dead)
    if not workers:
        collapse(turn, f"the last worker died ({', '.join(sorted(job.dead))})")
        return True
    _enter_death(turn, floor, workers, absorbed, clock)
    return True


def _enter_death(
    turn: Turn, floor: Configuration, workers: tuple[Member, ...], absorbed: tuple[Plan, ...], clock: int | None
) -> None:
    job = turn.job
    number = ConfigId(job.term, job.number + 1)
    table = replace(floor, id=number, workers=workers)
    known = dict.fromkeys([*job.members, *floor.members, *(name for plan in absorbed for name in plan.audience)])
    audience = tuple(name for name in known if name in job.nodes and not job.nodes[name].departing)
    plan = Plan(
        id=job.plans + 1,
        kind=Kind.DEATH,
        cause=_cause(job),
        started=turn.now,
        base=job.configuration,
        target=table,
        number=number,
        audience=audience,
        joiners=tuple(name for name in audience if name in table.members and name not in job.members),
        leavers=tuple(name for name in audience if name not in table.members),
        dead=job.dead,
        clock=clock,
        restore=job.restore if job.configuration is None else "",
        absorbed=absorbed,
    )
    plan = replace(advance(plan, Trigger.COMPLETE, turn.now), times=replace(plan.times, assigned=turn.now))
    turn.durable(plan=plan, plans=plan.id, number=number.number)
    turn.live(round=Round())
    if turn.state.saving is not None and not turn.state.saving.writing:
        turn.live(saving=replace(turn.state.saving, clock=None, saved={}))
    died = _died(job)
    if died and _irreplaceable(job):
        turn.durable(goal=replace(turn.job.goal, workers=len(workers)), unshared=tuple(sorted({*job.unshared, *died})))
        turn.log(lost_shares(turn.job), warning=True)
    turn.log(f"plan {plan.id} ASSIGNED: configuration {number} without {', '.join(sorted(job.dead))}", bool(died))


def _irreplaceable(job: Job) -> bool:
    """No worker could take the place of the dead."""
    return bool(static_reason(job)) or job.local_update


def lost_shares(job: Job) -> str:
    """What dead workers have left undone that nobody takes over, for people; "": nothing."""
    if not job.unshared:
        return ""
    verb, whose = ("is", "its") if len(job.unshared) == 1 else ("are", "their")
    return (
        f"{', '.join(job.unshared)} died and {verb} not replaced: nobody trains on {whose} share of the data (static)"
    )


def _died(job: Job) -> list[NodeId]:
    return sorted(job.dead - (job.finished - job.crashed.keys()))


def _cause(job: Job) -> str:
    """Why there is a plan without the dead, for people."""
    died = _died(job)
    over = sorted(job.dead.difference(died))
    causes = []
    if died:
        left = "; nobody trains on its share of the data" if _irreplaceable(job) else ""
        causes.append(f"death of {', '.join(died)}{left}")
    if over:
        causes.append(f"{', '.join(over)} {'have' if len(over) > 1 else 'has'} finished")
    return "; ".join(causes)
