"""How a job ends, and how it goes back to a checkpoint."""

from dataclasses import replace

from coordinator.core.batches.book_of_batches import Book
from coordinator.core.checkpoints.ledger_voids import Void
from coordinator.core.checkpoints.manifest import Manifest
from coordinator.core.effects import Why
from coordinator.core.events import Broken, Unreadable
from coordinator.core.plans.plan import Phase
from coordinator.core.plans.scale_requests import RESTORE, Goal
from coordinator.core.plans.transitions import Trigger, advance
from coordinator.core.state import Job, JobPhase, Round, StopOrder
from coordinator.core.step_context import Turn
from elastic_ps.core.configuration import Role
from elastic_ps.core.model import Model


def end(turn: Turn, phase: JobPhase, reason: str) -> None:
    """The job is over, well or not: everyone is told."""
    drop_work(turn, reason)
    failed = phase is JobPhase.FAILED
    stop_all(turn, StopOrder(reason, failed=failed))
    turn.durable(phase=phase, reason=reason, queued=(), loading=False)
    turn.log(f"job {phase}: {reason}", warning=failed)


def stop_all(turn: Turn, order: StopOrder) -> None:
    """Everyone who has not been told yet to end."""
    nodes = {name: replace(node, stop=node.stop or order) for name, node in turn.job.nodes.items()}
    turn.durable(nodes=nodes)


def drop_work(turn: Turn, reason: str) -> None:
    """Plan, checkpoint, declarations, draws and commands under way come to nothing."""
    plan = turn.job.plan
    if plan is not None:
        ended = plan if plan.phase is Phase.ARMED else advance(plan, Trigger.CANCEL, turn.now)
        for absorbed in (*plan.absorbed, ended):
            turn.close(replace(absorbed, reason=reason))
        turn.durable(plan=None)
    saving = turn.state.saving
    state = turn.state
    callers = [declaration.to for declaration in state.declarations] + [told.to for told in state.told]
    callers += (
        [draw.to for draw in state.draws]
        + [barrier.to for barrier in state.barriers]
        + [run.to for run in state.running]
    )
    callers += list(saving.to) if saving else []
    for to in callers:
        turn.refuse(to, reason, Why.ENDING)
    turn.live(round=Round(), declarations=(), trials=(), told=(), draws=(), barriers=(), running=(), saving=None)


def collapse(turn: Turn, why: str) -> None:
    """What is lost cannot be mended by a plan: back to the last checkpoint, or the end."""
    if turn.job.ended or turn.job.loading:
        return
    drop_work(turn, why)
    turn.log(f"{why}: the job goes back to its last checkpoint", warning=True)
    if turn.job.checkpoints or turn.job.begun or turn.state.settings.checkpoint or turn.state.settings.restore:
        turn.durable(loading=True, phase=JobPhase.RESTORING, reason=why)  # `looking` goes on
    elif not turn.job.model.blocks:
        begin_again(turn, why, "nothing has been trained yet")
    else:
        hint = "start jobs with --checkpoint URL --checkpoint-interval SECONDS to survive this"
        end(turn, JobPhase.FAILED, f"{why}, and the job has no checkpoint: {hint}")


def on_unreadable(turn: Turn, event: Unreadable) -> None:
    """Go back to another checkpoint: a server cannot load its blocks from this one.

    One that is damaged is never tried again: the next older one is taken. One that could only not be read now is tried
    a few times more.
    """
    job, plan = turn.job, turn.job.plan
    if plan is None or not plan.restore or plan.number != event.number:
        return
    if event.damaged:
        turn.durable(damaged=job.damaged | {plan.restore})
    else:
        turn.durable(unread={**job.unread, plan.restore: job.unread.get(plan.restore, 0) + 1})
    collapse(turn, f"{event.node} cannot load {plan.restore}: {event.detail}")


def on_broken(turn: Turn, event: Broken) -> None:
    """End the job where a member cannot go on: it holds what nobody else has, and would break again after a restore."""
    if event.node in turn.job.members and not turn.job.ended:
        end(turn, JobPhase.FAILED, f"{event.node} cannot go on: {event.detail}")


def restore(turn: Turn, url: str, saved: Manifest) -> None:
    """The tables are those of a checkpoint; the next start loads its blocks."""
    turn.live(job=restored(turn.job, url, saved, turn.job.term + 1))
    turn.keep(saved.book or Book())


def restored(job: Job, url: str, saved: Manifest, term: int) -> Job:
    """Return the job as a checkpoint has it, in a new term. It keeps its own identity, whoever wrote the checkpoint."""
    void = Void(term, saved.version) if saved.book is None else Void(term, 0, saved.floors)
    again = [batch.origin for batch in saved.book.named] if saved.book is not None else []
    workers = max([job.registered.get(Role.WORKER, 0), *(int(origin[1:]) + 1 for origin in again)])
    return replace(
        job,
        model=saved.model,
        optimizers=saved.optimizers,
        data=saved.data,
        local_update=saved.local_update,
        seed=saved.seed,
        restore=url,
        saves=max(job.saves, saved.version),
        registered={**job.registered, Role.WORKER: workers},  # a new worker is none whose batches blocks know
        voids=(*job.voids, void),
    )


def anew(job: Job, goal: Goal, term: int, found: tuple[str, Manifest] | None) -> Job:
    """The job of a journal, none of whose processes is left: what it trained and nobody kept does not count.

    Args:
        job: as it was journalled in an earlier term, ended or not.
        goal: that it begins with.
        term: that begins.
        found: URL and manifest of the checkpoint that it goes on from; None: from nothing.
    """
    gone = replace(
        _without_members(job),
        goal=goal,
        term=term - 1,
        phase=JobPhase.STARTING,
        reason="",
        queued=(),
        nodes={},
        plan=None,
    )
    if found is not None:
        return restored(gone, *found, term)
    empty = Job(goal, model=Model(block_bytes=job.model.block_bytes))
    names = ("model", "optimizers", "data", "local_update", "restore", "begun")
    return replace(gone, voids=(*job.voids, Void(term, 0)), **{name: getattr(empty, name) for name in names})


def _without_members(job: Job) -> Job:
    """Nobody is in it; names and numbers that were given out stay so."""
    return replace(
        job,
        loading=False,
        configuration=None,
        dead=frozenset(),
        finished=frozenset(),
        crashed={},
        unshared=(),
        passed=(-1, -1),
    )


def begin_again(turn: Turn, why: str, whence: str) -> None:
    """All processes end and are started again, for a reason and from somewhere; a higher term fences whoever has not
    heard."""
    reason = f"{why}; {whence}"
    drop_work(turn, reason)  # what was asked for while the checkpoint was looked for
    stop_all(turn, StopOrder(reason, restart=True))
    turn.live(job=_without_members(turn.job))
    turn.durable(
        term=turn.job.term + 1,
        phase=JobPhase.RESTORING,
        reason=reason,
        goal=replace(turn.job.goal, drains=frozenset(), cause=f"{RESTORE}{why}"),
    )
    turn.live(extended=frozenset(), welcomed=frozenset(), reached=0, grown_at=0.0)
    turn.log(reason, warning=True)
