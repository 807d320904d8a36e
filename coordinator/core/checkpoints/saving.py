"""The coordinator has the holders of all parameters save a checkpoint, servers run a script's command, and waits."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from coordinator.core import replies
from coordinator.core.batches.async_batches import Batch, Book, restorable
from coordinator.core.callers import PendingCheckpoint, RunningCommand
from coordinator.core.checkpoints.manifest import KEPT, Manifest, Stretch
from coordinator.core.checkpoints.saves_in_the_way import awaited
from coordinator.core.directives import landed, switching
from coordinator.core.effects import DiscardCheckpoint, Why, WriteManifest
from coordinator.core.events import CheckpointAsked, CommandAsked, ManifestWritten
from coordinator.core.job import JobPhase
from coordinator.core.node_answers import Commanded, Late, Saved
from coordinator.core.plans.plan import Phase
from coordinator.core.plans.scaling_clock import scaling_clock
from coordinator.core.step_context import StepContext
from elastic_ps.core.checkpoint_names import name_of
from elastic_ps.core.configuration import Configuration, NodeId, Role
from elastic_ps.core.long_text import unpacked

SAVE_SECONDS = 1800.0
"""Seconds after which the job goes on without a checkpoint that is not complete: its holders have so long to write."""

AFTER_SECONDS = 1.0
"""Seconds that a checkpoint is dated behind the one before, at least: by that a job finds the last."""

_NO_PARAMETERS = "the servers hold sums of gradients and no parameters, as update_on_kvstore=False has workers update"


def on_checkpoint_asked(context: StepContext, event: CheckpointAsked) -> None:
    """Begin a checkpoint for an operator, or have the operator wait for the one that is being written."""
    root = (event.url or context.state.settings.checkpoint).rstrip("/")
    saving = context.state.saving
    if not root:
        context.refuse(event.to, "the job has no folder for checkpoints: give one (`elasticctl checkpoint --url URL`)")
    elif context.job.ended:
        context.refuse(event.to, f"there is nothing to save any more: the job has ended ({context.job.reason})")
    elif context.job.phase is not JobPhase.RUNNING or not context.job.model.blocks:
        context.refuse(
            event.to, f"there is nothing to save yet: the job is {context.job.phase} and holds no parameters"
        )
    elif context.job.local_update:
        context.refuse(event.to, f"{_NO_PARAMETERS}: leave it at its default, and servers update and save")
    elif context.job.all_reduces and context.job.finished:
        context.refuse(
            event.to, "there is nothing more to save: workers have finished, and what they hold goes with them"
        )
    elif saving is None:
        context.live(saving=PendingCheckpoint((event.to,), root, begun=context.now))
    elif saving.root == root:
        context.live(saving=replace(saving, to=(*saving.to, event.to)))
    else:
        context.refuse(event.to, f"a checkpoint to {saving.root} is being written; ask again when it is done")


def long_ago(context: StepContext) -> float:
    """Return when the last checkpoint was, as far as a coordinator that comes back knows: so long ago that one is due.

    Else the interval would begin anew with each coordinator, and where they are lost often none would be made.
    """
    return context.now - context.state.settings.checkpoint_interval


def by_time(context: StepContext) -> None:
    """Begin a checkpoint from time to time; give up one that takes too long."""
    saving, settings = context.state.saving, context.state.settings
    if saving is not None and context.now >= saving.begun + SAVE_SECONDS:
        who = "the storage" if saving.writing else ", ".join(sorted(awaited(context.state)))
        why = f"{saving.url} is given up: {who} did not write it within {SAVE_SECONDS:.0f} s"
        if saving.clock is None:
            why = f"a checkpoint to {saving.root} is given up: it could not be begun within {SAVE_SECONDS:.0f} s"
        _fail(context, saving, why, over=not saving.writing)
        return
    due = settings.checkpoint_interval and context.now >= context.state.saved_at + settings.checkpoint_interval
    if not due or context.state.saving is not None or context.job.phase is not JobPhase.RUNNING or context.job.finished:
        return
    if settings.checkpoint and context.job.model.blocks and context.state.version and not context.job.local_update:
        root = settings.checkpoint.rstrip("/")
        context.live(saving=PendingCheckpoint((), root, begun=context.now), saved_at=context.now)


def on_started(context: StepContext) -> None:
    """Begin the checkpoint anew that a stop waits for: the coordinator that had begun it has ended."""
    job = context.job
    if job.stops_behind and job.phase is JobPhase.RUNNING and not (job.all_reduces and job.finished):
        context.live(saving=PendingCheckpoint((), job.stops_behind, begun=context.now))


def set_clock(context: StepContext) -> bool:
    """Set the version that a checkpoint saves all blocks at; without a common version it is saved at once."""
    saving, plan, job = context.state.saving, context.job.plan, context.job
    if saving is None or saving.clock is not None or context.state.told or context.state.declarations or job.dead:
        return False
    if switching(plan) and not landed(context.state):
        return False
    clock = _clock(context, saving) if job.is_sync else max(job.saves, context.state.version) + 1
    book = None if job.is_sync else context.state.book
    url = f"{saving.root}/{name_of(clock, job.identity)}"
    context.durable(saves=clock)
    order = replace(saving, clock=clock, book=book, drawn=(), url=url, given_up=context.state.ordered, saved={})
    context.live(saving=order, ordered=url)
    return True


def _clock(context: StepContext, saving: PendingCheckpoint) -> int:
    """Return a version that nobody has been told to save since the job last went back.

    Of an earlier order's folder servers repeat what they answered. It may have been given up and cleared away, or be
    older than the blocks, or the holders, that there are now.
    """
    told = [vitals for name, vitals in context.state.vitals.items() if name in context.job.members]
    exchanges = context.job.data.exchanges if context.job.data else 1
    margin = context.state.settings.margin << min(saving.tries, 9)
    clock = scaling_clock(told, exchanges, margin, context.state.version)
    return max(clock, (context.job.saves // exchanges + 1) * exchanges)


def on_late(context: StepContext, event: Late) -> None:
    """Set a later version to save, as a node is past the one that it was to save."""
    saving = context.state.saving
    if saving is None or saving.clock is None or saving.writing or event.version <= saving.clock:
        return
    context.live(saving=replace(saving, clock=None, saved={}, tries=saving.tries + 1))


def on_saved(context: StepContext, event: Saved) -> None:
    """Note that a node has written its blocks."""
    saving = context.state.saving
    if saving is None or saving.clock != event.version or saving.writing:
        return
    holds = Role.WORKER if context.job.all_reduces else Role.SERVER
    if context.job.nodes[event.node].role is not holds:
        return
    try:
        told = _told(event.detail, len(context.job.model.blocks))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        _fail(context, saving, f"{event.node} could not save its blocks: {event.detail[:500] or repr(error)}")
        return
    if told.get("url", saving.url) != saving.url:
        return  # of an order that was given up: two of one version may follow each other, into different folders
    if "error" in told:
        _fail(context, saving, str(told["error"]))
        return
    context.live(saving=replace(saving, saved={**saving.saved, event.node: event.detail}))


def _told(detail: str, blocks: int) -> Mapping[str, Any]:
    """Return where a node has written its blocks, or its error.

    Args:
        detail: of its answer, JSON.
        blocks: that the job has.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, RecursionError: no node answers so.
    """
    told = json.loads(unpacked(detail))
    if not isinstance(told, dict):
        raise TypeError(f"it is a {type(told).__name__}")
    if "error" in told:
        return told
    entries, applied = told["blocks"].items(), told.get("applied", {}).values()
    if not all(int(block) in range(blocks) and isinstance(entry.get("version", 0), int) for block, entry in entries):
        raise ValueError(f"it names blocks that are none of the job's {blocks}")
    if not all(
        isinstance(number, int) for held in applied for first, count, last in held for number in (first, count, last)
    ):
        raise TypeError("what its blocks have taken is no numbers")
    return told


def write(context: StepContext) -> bool:
    """Write the manifest, which makes the checkpoint valid, once all that hold blocks have saved."""
    saving, configuration = context.state.saving, context.job.configuration
    if saving is None or saving.clock is None or saving.writing or configuration is None:
        return False
    if awaited(context.state):
        return False
    told = [json.loads(unpacked(text)) for text in saving.saved.values()]
    blocks = {int(block): entry for server in told for block, entry in server["blocks"].items()}
    lost = sorted(set(range(len(context.job.model.blocks))) - blocks.keys())
    if lost:
        _fail(context, saving, f"nobody has saved blocks {lost[:10]}")
        return True
    job = context.job
    book: Book | None = None
    applied: Mapping[NodeId, tuple[Stretch, ...]] = {}
    if saving.book is not None and job.data is not None:
        held = [server.get("applied", {}) for server in told]
        book, applied = unfinished(saving.book, saving.drawn, job.data.exchanges, held)
    # the clock may be behind that of a coordinator before; from before `since` a job takes none for its own
    written = max(context.now, job.written + AFTER_SECONDS, job.since)
    manifest = Manifest(
        saving.clock,
        job.seed,
        job.model,
        job.optimizers,
        job.data,
        job.local_update,
        configuration,
        book,
        blocks,
        job.identity,
        written,
        applied,
    )
    context.durable(written=written)
    context.live(saving=replace(saving, writing=True))
    context.effects.append(WriteManifest(saving.url, manifest, job.damaged))
    return True


def unfinished(
    before: Book, drawn: Sequence[tuple[int, Batch]], exchanges: int, told: Sequence[Mapping[NodeId, Any]]
) -> tuple[Book, Mapping[NodeId, tuple[Stretch, ...]]]:
    """Return the book of batches as a checkpoint keeps it, and what blocks hold of those that it gives again.

    Args:
        before: as it stood before servers were told to save.
        drawn: epoch and batch of each draw that was answered since.
        exchanges: of each batch.
        told: by each server, by origin, first block, count and number of the last exchange that these have taken.
    """
    latest: dict[NodeId, int] = {}
    for origin, held in (item for server in told for item in server.items()):
        latest[origin] = max(latest.get(origin, -1), *(last for _, _, last in held))

    def taken(batch: Batch) -> bool:
        return batch.number * exchanges <= latest.get(batch.origin, -1)

    book = restorable(before, drawn, taken)
    again = {batch.origin for batch in book.named}
    applied = {
        origin: tuple(sorted((first, count, last) for server in told for first, count, last in server.get(origin, ())))
        for origin in sorted(again & latest.keys())
    }
    return book, applied


def on_written(context: StepContext, event: ManifestWritten) -> None:
    """Answer those who wait for a checkpoint: its manifest is there, or could not be written."""
    saving = context.state.saving
    if event.error:
        if saving is not None and saving.url == event.url:
            _fail(context, saving, f"cannot write {event.url}: {event.error}")
        return
    context.live(unsaved="", ordered="" if context.state.ordered == event.url else context.state.ordered)
    damaged = context.job.damaged - {event.url}
    known = tuple(url for url in context.job.checkpoints if url != event.url and url not in damaged)
    context.durable(checkpoints=(*known, event.url)[-KEPT:], damaged=damaged)
    promise = "" if context.job.is_sync else "; consistent per block only"
    context.log(f"checkpoint {event.url}, {event.bytes} bytes{promise}")
    if saving is None or saving.url != event.url:
        return
    for to in saving.to:
        context.reply(to, replies.CheckpointReply(event.url, saving.clock or 0, event.bytes))
    context.live(saving=None, saved_at=context.now)


def _fail(context: StepContext, saving: PendingCheckpoint, why: str, over: bool = True) -> None:
    """Let the checkpoint come to nothing, and the job go on; `over`: nobody writes to it any more."""
    context.log(why, warning=True)
    for to in saving.to:
        context.refuse(to, why)
    context.effects += [DiscardCheckpoint(saving.url)] if saving.url and over else []
    context.live(saving=None, unsaved=why, ordered=context.state.ordered if over else "")


def _adopted(context: StepContext) -> Configuration | None:
    """Return the configuration in force; while the job starts, the first one, which scripts adopt before its commit."""
    plan = context.job.plan
    if context.job.configuration is None and plan is not None and plan.phase is Phase.ARMED:
        return plan.target
    return context.job.configuration


def on_command_asked(context: StepContext, event: CommandAsked) -> None:
    """Hand a script's text to the servers' handlers."""
    configuration = _adopted(context)
    if context.job.ended:
        context.refuse(event.to, context.job.reason, Why.ENDING)
        return
    if context.turns_away(event.to, event.node):
        return
    if configuration is None:
        context.refuse(event.to, "the job has no servers yet: elastic_ps.init() returns when it has")
        return
    servers = frozenset(server.id for server in configuration.servers)
    asked = RunningCommand(event.id, event.to, event.head, event.body, servers, since=context.now)
    known = next((run for run in context.state.running if run.id == event.id), asked)
    others = tuple(run for run in context.state.running if run is not known)
    context.live(running=(*others, replace(known, to=event.to)))


def on_commanded(context: StepContext, event: Commanded) -> None:
    """Note that a server has run a command."""
    runs = []
    for run in context.state.running:
        if run.id == event.command and event.node in run.waiting:
            errors = (*run.errors, f"{event.node}: {event.error}") if event.error else run.errors
            run = replace(run, waiting=run.waiting - {event.node}, errors=errors)
        runs.append(run)
    context.live(running=tuple(runs))


def commands(context: StepContext) -> bool:
    """Answer commands that all servers have run; a server that has left need not."""
    if not context.state.running:
        return False
    configuration = _adopted(context)
    members = configuration.members.keys() if configuration is not None else frozenset()
    done = [run for run in context.state.running if not run.waiting & members]
    for run in done:
        if run.errors:
            context.refuse(run.to, "; ".join(run.errors), Why.INVALID)
        else:
            context.reply(run.to, replies.CommandReply())
    context.live(running=tuple(run for run in context.state.running if run not in done))
    return bool(done)
