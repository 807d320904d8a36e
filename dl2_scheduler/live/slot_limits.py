"""This module bounds how much of a decision is done in one slot. It is pure.

What is held back keeps what it has, and says why. It is the step `limit` of `slot_decision`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.snapshot import Allocation, Grant, JobId, JobState, Snapshot
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.live.slot_draft import SlotDraft

Counts = tuple[int, int]
"""Numbers of workers and of servers."""


@dataclass(frozen=True)
class SlotLimits:
    """`SlotLimits` say how much may change in a slot of a live cluster.

    Attributes:
        most_changes: tasks that start or end in a slot, of all jobs together.
        least_slots: slots from one scaling of a job to its next; 1: it may be scaled in every slot.
    """

    most_changes: int = 1000
    least_slots: int = 1


def last_scalings(slots: Iterable[RecordedSlot]) -> dict[JobId, int]:
    """Return the last slot of a history in which each job's counts were changed."""
    found: dict[JobId, int] = {}
    for slot in slots:
        found |= dict.fromkeys(changed_jobs(slot.snapshot, slot.allocation), slot.snapshot.slot)
    return found


def changed_jobs(snapshot: Snapshot, allocation: Allocation) -> list[JobId]:
    """Return the jobs that are given other counts than they had."""
    return [state.job.id for state in snapshot.jobs if _given(allocation, state) != (state.workers, state.servers)]


def limit(draft: SlotDraft, limits: SlotLimits, scaled: Mapping[JobId, int]) -> SlotDraft:
    """Return what of a decision is done now.

    Tasks that end come before those that start, but take at most half of the bound where something is to start. A job
    that has nothing may always start, as far as the bound goes. One whose minimum is over the bound starts in a slot in
    which nothing else has, and is suspended in one in which nothing else ended before. Where what jobs are to keep does
    not fit (nodes have gone), the decision is done whole.

    Args:
        draft: the decision, which fits.
        limits: what may change in a slot.
        scaled: the last slot in which each job's counts were changed.
    """
    snapshot = draft.snapshot
    moves = [_Move.of(state, draft.allocation, limits, scaled, snapshot.slot) for state in snapshot.jobs]
    if not any(move.frozen for move in moves) and sum(move.size for move in moves) <= limits.most_changes:
        return draft
    left = _shrink(moves, limits.most_changes)
    room = FreeResources(snapshot, draft.rule)
    kept = [room.give(index, *move.now) for index, move in enumerate(moves) if move.now != (0, 0)]
    if not all(kept):
        return draft
    for index in sorted(range(len(moves)), key=lambda index: moves[index].now != (0, 0)):
        left = _grow(index, moves[index], room, left, limits.most_changes)
    return draft.revised({move.state.job.id: move.grant(limits) for move in moves}, room)


@dataclass
class _Move:
    """A `_Move` takes one job from what it has to what was decided.

    Attributes:
        state: the job's state at the slot's start.
        wanted: what was decided, and why.
        now: what it gets in this slot.
        frozen: why it may not be scaled; "": it may.
        no_room: whether it could not grow as far as the bound would let it.
    """

    state: JobState
    wanted: Grant
    now: Counts
    frozen: str
    no_room: bool = False

    @staticmethod
    def of(
        state: JobState, allocation: Allocation, limits: SlotLimits, scaled: Mapping[JobId, int], slot: int
    ) -> "_Move":
        """Return a job's move at its beginning.

        Args:
            state: the state of the job.
            allocation: what was decided.
            limits: what may change in a slot.
            scaled: the last slot in which each job's counts were changed.
            slot: the number of the slot.
        """
        before, wanted = (state.workers, state.servers), allocation.of(state.job.id)
        ago = slot - scaled.get(state.job.id, -limits.least_slots)
        moves = before not in ((0, 0), (wanted.workers, wanted.servers))
        frozen = f"scaled {_slots(ago)} ago, at least {limits.least_slots} lie between" if moves else ""
        return _Move(state, wanted, before, frozen if ago < limits.least_slots else "")

    @property
    def goal(self) -> Counts:
        """The counts that it goes to."""
        return (self.state.workers, self.state.servers) if self.frozen else (self.wanted.workers, self.wanted.servers)

    @property
    def size(self) -> int:
        """The number of tasks that are still to start or to end."""
        return abs(self.goal[0] - self.now[0]) + abs(self.goal[1] - self.now[1])

    def grant(self, limits: SlotLimits) -> Grant:
        """Return what the job gets, with the reason where it is other than decided."""
        wanted = self.wanted.workers, self.wanted.servers
        if self.now == wanted:
            return self.wanted
        if not self.frozen and not self.no_room:
            why = f"at most {limits.most_changes} tasks start or end in a slot"
        else:
            why = self.frozen or "what others keep for now leaves no room"
        held = f"held at {self.now[0]}+{self.now[1]} instead of {wanted[0]}+{wanted[1]}: {why}"
        return Grant(*self.now, "; ".join(filter(None, (held, self.wanted.reason))))


def _shrink(moves: list[_Move], bound: int) -> int:
    """End tasks, and return how many may be started."""
    starts = any(move.goal[0] > move.now[0] or move.goal[1] > move.now[1] for move in moves)
    may_end, ended = (bound // 2 if starts else bound), 0
    for move in moves:
        workers, servers = move.now
        fewer = max(0, workers - move.goal[0]), max(0, servers - move.goal[1])
        if sum(fewer) > may_end - ended:
            least = move.state.job.min_workers, move.state.job.min_servers
            part = _part(fewer, (workers - least[0], servers - least[1]), may_end - ended)
            alone = move.goal == (0, 0) and (workers, servers) == least and not ended
            fewer = fewer if alone else part
        move.now = workers - fewer[0], servers - fewer[1]
        ended += sum(fewer)
    return max(0, bound - ended)


def _part(fewer: Counts, most: Counts, count: int) -> Counts:
    """Return how many of the tasks may end, the workers first."""
    workers = max(0, min(fewer[0], most[0], count))
    return workers, max(0, min(fewer[1], most[1], count - workers))


def _grow(index: int, move: _Move, room: FreeResources, left: int, bound: int) -> int:
    """Start tasks of a job, as many as fit; return how many more may be started, of all jobs."""
    job = move.state.job
    if move.size and move.now == (0, 0):
        least = job.min_workers, job.min_servers
        alone = sum(least) > bound and left == bound
        if sum(least) > left and not alone:
            return left
        if not room.give(index, *least):
            move.no_room = True
            return left
        move.now = least
        left = max(0, left - sum(least))
    more = max(0, move.goal[0] - move.now[0]), max(0, move.goal[1] - move.now[1])
    if sum(more) <= left and room.give(index, *more):
        move.now = move.now[0] + more[0], move.now[1] + more[1]
        return left - sum(more)
    for role in _in_turn(more):
        one = (1, 0) if role == 0 else (0, 1)
        if not left:
            break
        if room.give(index, *one):
            move.now = move.now[0] + one[0], move.now[1] + one[1]
            left -= 1
        else:
            move.no_room = True
    return left


def _in_turn(more: Counts) -> list[int]:
    """Return the roles of the tasks that are missing, by turns as long as both lack some."""
    both = min(more)
    return [0, 1] * both + [0] * (more[0] - both) + [1] * (more[1] - both)


def _given(allocation: Allocation, state: JobState) -> Counts:
    grant = allocation.of(state.job.id)
    return grant.workers, grant.servers


def _slots(count: int) -> str:
    return "1 slot" if count == 1 else f"{count} slots"
