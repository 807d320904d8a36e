"""This module says what moving a task costs a cluster whose jobs join and leave, by what its own slots have shown."""

from dl2_scheduler.cluster.durations import in_words
from dl2_scheduler.cluster.placement.task_moves import MoveCost
from dl2_scheduler.cluster.snapshot import JobId
from dl2_scheduler.live.history import History
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.replay.costs import costs_of
from dl2_scheduler.replay.scalings import Scalings
from dl2_scheduler.sim.lanes import MEASURED

_LATEST = 1000
"""Slots that are looked at when it begins, and jobs that are remembered."""
_JOINS = 100
"""That are counted, the latest."""


class MoveCosts:
    """These `MoveCosts` follow the history of a cluster. They are asked before a slot is written into it.

    Args:
        history: of the cluster.
        slot: number of the next slot.
    """

    def __init__(self, history: History, slot: int):
        self._history = history
        self._seen = slot - _LATEST - 1
        self._scalings = Scalings({}, _JOINS)
        self._scaled: dict[JobId, float] = {}  # their arrivals, in the order in which they were

    def cost(self) -> MoveCost | None:
        """Return what a move costs; None: no join has been seen yet.

        The task leaves, and another one joins elsewhere: two changes, and between them the time of a join.
        """
        self._look()
        join = costs_of(self._scalings).join
        if join is None:
            return None
        words = f" (a task joins in {in_words(join.seconds)} here, the mean of {join.count})"
        return MoveCost(2 * MEASURED.change, join.seconds, words)

    def scaled_jobs(self) -> frozenset[JobId]:
        """Return the names of the jobs that were given other counts while they trained, and have taken them."""
        self._look()
        return frozenset(self._scaled)

    def _look(self) -> None:
        """Take what has happened since somebody looked last."""
        for slot in self._history.slots(self._seen):
            self._seen = slot.snapshot.slot
            self._scalings.observe(slot)
            arrivals = {state.job.id: state.job.arrival for state in slot.snapshot.jobs}
            for job in [job for job, arrival in self._scaled.items() if arrivals.get(job, arrival) != arrival]:
                del self._scaled[job]  # another of its name
            self._scaled |= {job: arrivals[job] for job in _scaled_in(slot)}
        while len(self._scaled) > _LATEST:
            del self._scaled[next(iter(self._scaled))]


def _scaled_in(slot: RecordedSlot) -> list[JobId]:
    """Return the jobs that trained with other counts at a slot's end than at its beginning, and went on."""
    done = {each.id: each for each in slot.outcome.jobs} if slot.outcome else {}
    before = [(state, done[state.job.id]) for state in slot.snapshot.jobs if state.job.id in done]
    return [
        state.job.id
        for state, after in before
        if state.workers and state.servers and after.workers and after.servers and after.finished is None
        if (state.workers, state.servers) != (after.workers, after.servers)
    ]
