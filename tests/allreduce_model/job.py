"""What the model's states consist of: workers, a plan, what was contributed and reported."""

from dataclasses import dataclass, replace

RULES = {
    "agree_first": "members agree on a version before the first step of a configuration",
    "nobody_goes_back": "they agree on the newest version, not the oldest",
    "report_settled": "an update is reported when every member has it, not when it is applied",
    "settle_what_was_held": "an agreement settles what all members held before it, not what it has agreed on",
    "adopt_the_rest": "from the first switch on, the coordinator tells the rest to adopt",
    "death_builds_on_armed": "a death after ARMED takes the dead off the new configuration, not off the old one",
    "late_is_armed_again": "after a LATE all are armed again, with a later clock",
    "one_plan": "a plan before ARMED is cancelled by a death",
    "shadows_do_not_go_on_alone": "who has only followed goes on with a member, and not without any",
}


@dataclass(frozen=True)
class Worker:
    """A worker; `op` is the collective that it takes part in: (configuration, kind, number).

    A shadow's `source` is whom it follows (-1: nobody), and `sent` the history that this member has sent it, which may
    still be on its way. `proven`: it has agreed on what it holds.
    """

    held: int
    history: tuple[int, ...] = ()
    keeps: bool = False
    current: int = 0
    prepared: int = -1
    clock: int = -1
    fresh: bool = False
    op: tuple[int, str, int] | None = None
    alive: bool = True
    left: bool = False
    failed: bool = False  # its group has failed: it waits for news
    proven: bool = True
    source: int = -1
    sent: tuple[int, ...] = ()
    ended: bool = False  # its source sends no more
    inbox: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True)
class Plan:
    """A plan of the coordinator; `clock` -1: none is set."""

    target: int
    is_death: bool
    audience: frozenset[int]
    phase: str = "ASSIGNED"
    clock: int = -1
    prepared: frozenset[int] = frozenset()
    armed: frozenset[int] = frozenset()
    switched: frozenset[int] = frozenset()
    late: bool = False
    decided: bool = False


Told = tuple[int, bool, bool, tuple[int, ...]]
"""What a member holds: the version, whether it keeps the record that led to it, whether it is proven; the history."""

Said = tuple[tuple[int, str, int], int, Told]
"""What a member has contributed to a collective: which, who, and what it held."""


@dataclass(frozen=True)
class Job:
    """All of it; `rosters` by configuration. `lost`: nobody is left in the roster."""

    workers: tuple[Worker, ...]
    rosters: tuple[tuple[int, ...], ...]
    in_force: int = 0
    plan: Plan | None = None
    said: frozenset[Said] = frozenset()
    reported: tuple[int, ...] = ()
    known_dead: frozenset[int] = frozenset()
    planned: bool = False
    crashes: int = 0
    cuts: int = 0
    lost: bool = False


@dataclass(frozen=True)
class Scope:
    """A scope.

    `joins` and `leaves`: a worker that does, by a plan at any time; `cuts`: so often a shadow's stream may break off
    though nobody has died.
    """

    members: int = 2
    joins: bool = False
    leaves: int = -1
    steps: int = 2
    crashes: int = 1
    cuts: int = 0
    without: frozenset[str] = frozenset()

    def has(self, rule: str) -> bool:
        return rule not in self.without


class BrokenError(Exception):
    """An invariant does not hold."""


def with_worker(job: Job, who: int, worker: Worker) -> Job:
    return replace(job, workers=(*job.workers[:who], worker, *job.workers[who + 1 :]))


def send(job: Job, audience: frozenset[int], directive: tuple[str, int, int]) -> Job:
    for who in sorted(audience):
        worker = job.workers[who]
        if worker.alive and not worker.left:
            job = with_worker(job, who, replace(worker, inbox=(*worker.inbox, directive)))
    return job
