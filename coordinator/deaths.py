"""Deaths of members: the survivors agree on a table without them (docs/protocol.md, "A plan")."""

from dataclasses import replace

from coordinator.ending import collapse
from coordinator.plan import Kind, Phase, Plan
from coordinator.plans import cancel
from coordinator.state import Round
from coordinator.transitions import Trigger, advance
from coordinator.turn import Turn
from elastic_ps.core.configuration import ConfigId, Configuration, Member


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
        cancel(turn, f"died: {', '.join(sorted(job.dead))}")
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
        cause=f"death of {', '.join(sorted(job.dead))}",
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
    if not (job.elastic or not job.model.blocks) or job.local_update:  # no worker could take the place of the dead
        turn.durable(goal=replace(turn.job.goal, workers=len(workers)))
    turn.log(f"plan {plan.id} ASSIGNED: configuration {number} without {', '.join(sorted(job.dead))}", warning=True)
