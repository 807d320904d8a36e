"""The search for the checkpoint that a job goes back to: a storage that does not answer is asked again, for a while."""

from dataclasses import replace
from datetime import datetime

from coordinator.core.callers import Looking
from coordinator.core.checkpoints.ending import begin_again, end, restore
from coordinator.core.checkpoints.manifest import CheckpointSearch
from coordinator.core.effects import FindCheckpoint
from coordinator.core.events import CheckpointFound
from coordinator.core.state import Job, JobPhase, Settings
from coordinator.core.step_context import Turn

PATIENCE_SECONDS = 300.0
"""That a storage which does not answer is asked."""

ANSWER_SECONDS = 60.0
"""That one search may take, until another one is begun beside it."""

_LONGEST_PAUSE = 15.0

UNREAD = 3
"""Times that servers may fail to read a checkpoint of which nobody knows that it is damaged, before an older one."""


def search_of(settings: Settings, job: Job) -> CheckpointSearch:
    """Return which checkpoints the job may load."""
    passed = job.damaged | {url for url, times in job.unread.items() if times >= UNREAD}
    return CheckpointSearch(
        job.identity, tuple(reversed(job.checkpoints)), settings.checkpoint, job.begun, settings.restore, passed
    )


def begin(turn: Turn) -> None:
    """Look for the checkpoint, where the job is to go back to one, and nobody looks for it yet."""
    if not turn.job.loading:
        turn.live(looking=None)
    elif turn.state.looking is None:
        turn.live(looking=Looking(turn.now, turn.now + ANSWER_SECONDS))
        turn.effects.append(FindCheckpoint(search_of(turn.state.settings, turn.job)))


def check(turn: Turn) -> None:
    """Look again, where that is due."""
    looking = turn.state.looking
    if looking is None or turn.now < looking.due or not turn.job.loading:
        return
    trouble = looking.trouble or f"{_places(turn)} did not answer within {ANSWER_SECONDS:.0f} s"
    if turn.now >= looking.since + PATIENCE_SECONDS:
        why = f"{turn.job.reason}, and its checkpoints could not be looked for in {PATIENCE_SECONDS:.0f} s: {trouble}"
        end(turn, JobPhase.FAILED, why)
        return
    due = turn.now + ANSWER_SECONDS
    last = due >= looking.since + PATIENCE_SECONDS
    turn.live(looking=replace(looking, due=due, tries=looking.tries + 1, trouble=trouble))
    turn.effects.append(FindCheckpoint(search_of(turn.state.settings, turn.job), patient=not last))


def _places(turn: Turn) -> str:
    search = search_of(turn.state.settings, turn.job)
    return " and ".join(dict.fromkeys(filter(None, (search.folder, search.begun or search.restore))))


def on_found(turn: Turn, event: CheckpointFound) -> None:
    """Go on from what a search has found."""
    looking = turn.state.looking
    if not turn.job.loading:
        return
    if event.again and looking is not None:
        pause = min(2.0 ** (looking.tries - 1), _LONGEST_PAUSE)
        turn.live(looking=replace(looking, due=turn.now + pause, trouble=event.error))
        turn.log(f"{event.error}; asked again in {pause:.0f} s, {words(turn.state.looking)}", warning=True)
        return
    why = turn.job.reason
    if event.manifest is not None:
        restore(turn, event.url, event.manifest)
        begin_again(turn, why, f"restored from {event.url}")
    elif turn.job.model.blocks or turn.state.settings.restore:
        end(turn, JobPhase.FAILED, f"{why}, and there is no checkpoint to go back to: {event.error}")
    else:
        begin_again(turn, why, "nothing has been trained yet")


def words(looking: Looking | None) -> str:
    """Return how long a storage that does not answer is asked, for people; "": it has not been in trouble."""
    if looking is None or not looking.trouble:
        return ""
    until = datetime.fromtimestamp(looking.since + PATIENCE_SECONDS).astimezone()
    return f"until {until:%H:%M:%S} (try {looking.tries})"
