"""This module ends a job, or takes it back to a checkpoint."""

from dataclasses import replace

from coordinator.core.batches.async_batches import Book
from coordinator.core.checkpoints.ledger_voids import Void
from coordinator.core.checkpoints.manifest import Manifest
from coordinator.core.effects import DiscardCheckpoint, Why
from coordinator.core.job import OF_ITSELF, DurableJob, JobPhase, StopOrder
from coordinator.core.node_answers import Broken, CheckpointUnreadable
from coordinator.core.plans.plan import Phase
from coordinator.core.plans.scale_goal import RESTORE, ScaleGoal
from coordinator.core.plans.transitions import Trigger, advance
from coordinator.core.state import PlanAnswers
from coordinator.core.step_context import StepContext
from elastic_ps.core.configuration import Role
from elastic_ps.core.model import Model


def end(context: StepContext, phase: JobPhase, reason: str) -> None:
    """End the job, well or not, and tell everyone.

    Args:
        context: the step that does it.
        phase: that the job ends in.
        reason: for people.
    """
    saving = context.state.saving
    drop_work(context, reason)
    if saving is not None and saving.url and not saving.writing:
        # not where the job goes back: it may save that version again, and a storage may be late to remove the first
        context.effects.append(DiscardCheckpoint(saving.url))
    failed = phase is JobPhase.FAILED
    stop_all(context, StopOrder(reason, failed=failed))
    context.durable(phase=phase, reason=reason, queued=(), loading=False, stopping="", stops_behind="")
    context.log(f"job {phase}: {reason}", warning=failed)


def stop_all(context: StepContext, order: StopOrder) -> None:
    """Tell everyone to end who has not been told yet."""
    nodes = {name: replace(node, stop=node.stop or order) for name, node in context.job.nodes.items()}
    context.durable(nodes=nodes)


def drop_work(context: StepContext, reason: str) -> None:
    """Plan, checkpoint, declarations, draws and commands under way come to nothing."""
    plan = context.job.plan
    if plan is not None:
        for record in (*plan.absorbed, plan):
            trigger = Trigger.DROP if record.phase is Phase.ARMED else Trigger.CANCEL
            context.close(replace(advance(record, trigger, context.now), reason=reason))
        context.durable(plan=None)
    saving = context.state.saving
    state = context.state
    callers = [declaration.to for declaration in state.declarations] + [told.to for told in state.told]
    callers += (
        [draw.to for draw in state.draws]
        + [barrier.to for barrier in state.barriers]
        + [run.to for run in state.running]
    )
    for to in callers:
        context.refuse(to, reason, Why.ENDING)
    for to in saving.to if saving else ():
        why = "the job has finished" if reason == OF_ITSELF else reason
        context.refuse(to, f"the checkpoint came to nothing: {why}", Why.ENDING)
    context.live(
        answers=PlanAnswers(), declarations=(), trials=(), told=(), draws=(), barriers=(), running=(), saving=None
    )
    context.live(ordered="")  # its manifest may be being written, and the job may save that version again


def collapse(context: StepContext, why: str) -> None:
    """Go back to the last checkpoint, or end the job, as no plan can mend what is lost."""
    if context.job.ended or context.job.loading:
        return
    if context.job.stopping:  # the checkpoint that it has waited for comes to nothing
        end(context, JobPhase.FINISHED, context.job.stopping)
        return
    drop_work(context, why)
    context.log(f"{why}: the job goes back to its last checkpoint", warning=True)
    if (
        context.job.checkpoints
        or context.job.begun
        or context.state.settings.checkpoint
        or context.state.settings.restore
    ):
        context.durable(loading=True, phase=JobPhase.RESTORING, reason=why)  # `search` goes on
    elif not context.job.model.blocks:
        begin_again(context, why, "nothing has been trained yet")
    else:
        hint = "start jobs with --checkpoint URL --checkpoint-interval SECONDS to survive this"
        end(context, JobPhase.FAILED, f"{why}, and the job has no checkpoint: {hint}")


def on_unreadable(context: StepContext, event: CheckpointUnreadable) -> None:
    """Go back to another checkpoint: a server cannot load its blocks from this one.

    One that is damaged is never tried again: the next older one is taken. One that could only not be read now is tried
    a few times more.
    """
    job, plan = context.job, context.job.plan
    if plan is None or not plan.restore or plan.number != event.number:
        return
    if event.damaged:
        context.durable(damaged=job.damaged | {plan.restore})
    else:
        context.durable(unread={**job.unread, plan.restore: job.unread.get(plan.restore, 0) + 1})
    collapse(context, f"{event.node} cannot load {plan.restore}: {event.detail}")


def on_broken(context: StepContext, event: Broken) -> None:
    """End the job where a member cannot go on: it holds what nobody else has, and would break again after a restore."""
    if event.node in context.job.members and not context.job.ended:
        end(context, JobPhase.FAILED, f"{event.node} cannot go on: {event.detail}")


def restore(context: StepContext, url: str, saved: Manifest) -> None:
    """Take the job's state from a checkpoint; the next start loads its blocks.

    Args:
        context: the step that does it.
        url: folder of the checkpoint.
        saved: its manifest.
    """
    job = restored(context.job, url, saved, context.job.term + 1)
    blocks = len(job.model.blocks)
    if job.goal.servers > blocks > 0:  # it began before anybody knew how few there would be
        context.log(f"{blocks} of {job.goal.servers} servers are started again: the model has no more blocks")
        job = replace(job, goal=job.goal.changed(Role.SERVER, blocks))
    context.live(job=job)
    context.keep(saved.book or Book())


def restored(job: DurableJob, url: str, saved: Manifest, term: int) -> DurableJob:
    """Return the job as a checkpoint has it, in a new term. It keeps its own identity, whoever wrote the checkpoint.

    Args:
        job: as it is.
        url: folder of the checkpoint.
        saved: its manifest.
        term: that begins.
    """
    latest = saved.configuration.id.term
    void = Void(
        term, saved.version if saved.book is None else 0, saved.floors if saved.book is not None else (), latest
    )
    before = tuple(void for void in job.voids if void.term <= latest)  # else it was saved when that did not stand yet
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
        saves=saved.version if saved.book is None else max(job.saves, saved.version),
        written=max(job.written, saved.written),
        registered={**job.registered, Role.WORKER: workers},  # a new worker is none whose batches blocks know
        voids=(*before, void),
    )


def anew(job: DurableJob, goal: ScaleGoal, term: int, found: tuple[str, Manifest] | None) -> DurableJob:
    """Return the job of a journal, none of whose processes is left: what it trained and nobody kept does not count.

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
        stopping="",
        stops_behind="",
        modules={},
    )
    if found is not None:
        return restored(gone, *found, term)
    empty = DurableJob(goal, model=Model(block_bytes=job.model.block_bytes))
    names = ("model", "optimizers", "data", "local_update", "restore", "begun", "since")
    gone = replace(gone, voids=(*job.voids, Void(term, 0)), saves=0 if job.is_sync else job.saves)
    return replace(gone, **{name: getattr(empty, name) for name in names})


def _without_members(job: DurableJob) -> DurableJob:
    """Return the job without anybody in it; names and numbers that were given out stay so."""
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


def begin_again(context: StepContext, why: str, whence: str) -> None:
    """End all processes and have them started again; a higher term fences whoever has not heard.

    Args:
        context: the step that does it.
        why: the job begins again, for people.
        whence: it goes on from, for people.
    """
    reason = f"{why}; {whence}"
    drop_work(context, reason)  # what was asked for while the checkpoint was looked for
    stop_all(context, StopOrder(reason, restart=True))
    context.live(job=_without_members(context.job))
    context.durable(
        term=context.job.term + 1,
        phase=JobPhase.RESTORING,
        reason=reason,
        goal=replace(context.job.goal, drains=frozenset(), cause=f"{RESTORE}{why}"),
    )
    # Launchers start as many as are wanted now: whoever comes beyond was started by somebody else, for a reason.
    context.live(surplus={}, extended=frozenset(), welcomed=frozenset(), reached=0, grown_at=0.0, protect_after=0.0)
    context.log(reason, warning=True)
