"""A job that goes back to a checkpoint asks for one; a storage that does not answer is asked again, for a while.

The choice among those that lie there is made by `coordinator.server.checkpoint_choice`.
"""

from dataclasses import replace
from datetime import datetime

from coordinator.core.callers import PendingSearch
from coordinator.core.checkpoints.ending import begin_again, end, restore
from coordinator.core.checkpoints.manifest import CheckpointSearch
from coordinator.core.effects import FindCheckpoint
from coordinator.core.events import CheckpointFound
from coordinator.core.job import DurableJob, JobPhase
from coordinator.core.state import CoordinatorSettings
from coordinator.core.step_context import StepContext

PATIENCE_SECONDS = 300.0
"""Seconds for which a storage that does not answer is asked."""

ANSWER_SECONDS = 60.0
"""Seconds that one search may take, until another one is begun beside it."""

_LONGEST_PAUSE = 15.0

UNREAD = 3
"""How often servers may fail to read a checkpoint that is not known to be damaged, before an older one is taken."""


def search_of(settings: CoordinatorSettings, job: DurableJob) -> CheckpointSearch:
    """Return which checkpoints the job may load."""
    passed = job.damaged | {url for url, times in job.unread.items() if times >= UNREAD}
    known = tuple(reversed(job.checkpoints))
    return CheckpointSearch(
        job.identity, known, settings.checkpoint, job.begun, settings.restore, passed, since=job.since
    )


def begin(context: StepContext) -> None:
    """Look for the checkpoint, where the job is to go back to one, and nobody looks for it yet."""
    if not context.job.loading:
        if context.state.looking is not None:
            context.live(looking=None)
    elif context.state.looking is None:
        context.live(looking=PendingSearch(context.now, context.now + ANSWER_SECONDS))
        context.effects.append(FindCheckpoint(search_of(context.state.settings, context.job)))


def check(context: StepContext) -> None:
    """Look again, where that is due."""
    looking = context.state.looking
    if looking is None or context.now < looking.due or not context.job.loading:
        return
    trouble = looking.trouble or f"{_places(context)} did not answer within {ANSWER_SECONDS:.0f} s"
    if context.now >= looking.since + PATIENCE_SECONDS:
        why = (
            f"{context.job.reason}, and its checkpoints could not be looked for in {PATIENCE_SECONDS:.0f} s: {trouble}"
        )
        end(context, JobPhase.FAILED, why)
        return
    due = context.now + ANSWER_SECONDS
    last = due >= looking.since + PATIENCE_SECONDS
    context.live(looking=replace(looking, due=due, tries=looking.tries + 1, trouble=trouble))
    context.effects.append(FindCheckpoint(search_of(context.state.settings, context.job), patient=not last))


def _places(context: StepContext) -> str:
    search = search_of(context.state.settings, context.job)
    return " and ".join(dict.fromkeys(filter(None, (search.folder, search.begun or search.restore))))


def on_found(context: StepContext, event: CheckpointFound) -> None:
    """Go on from what a search has found; one that was begun for an earlier restore tells nothing of what is there now.

    A storage that hangs may answer at any time. What the job may load changes while it trains, and with a checkpoint
    that comes to be whole only now.
    """
    if not context.job.loading:
        return
    looking, search = context.state.looking, search_of(context.state.settings, context.job)
    if event.search not in (None, search):
        context.effects.append(FindCheckpoint(search))
        return
    if event.again and looking is not None:
        pause = min(2.0 ** (looking.tries - 1), _LONGEST_PAUSE)
        context.live(looking=replace(looking, due=context.now + pause, trouble=event.error))
        context.log(f"{event.error}; asked again in {pause:.0f} s, {words(context.state.looking)}", warning=True)
        return
    why = context.job.reason
    if event.manifest is not None:
        restore(context, event.url, event.manifest)
        begin_again(context, why, f"restored from {event.url}")
    elif context.job.model.blocks or context.state.settings.restore:
        end(context, JobPhase.FAILED, f"{why}, and the job cannot go back: {event.error}")
    else:
        begin_again(context, why, "nothing has been trained yet")


def words(looking: PendingSearch | None) -> str:
    """Return how long a storage that does not answer is asked, for people; "": it has not been in trouble."""
    if looking is None or not looking.trouble:
        return ""
    until = datetime.fromtimestamp(looking.since + PATIENCE_SECONDS).astimezone()
    return f"until {until:%H:%M:%S} (try {looking.tries})"
