"""The protocol of docs/reference/all-reduce.md, as states and actions; `explore` tries all orders.

What a worker holds is its *history*: by step, the number of the configuration that made it. Two workers that hold a
version must hold the same history up to it; one that has left counts like one that has died, for nobody hears of it any
more. `agree` is the production code's.

Abstractions: an answer reaches the coordinator at once, a directive after any delay, in order. A collective ends at a
member once all have contributed, or fails there once somebody is dead or has left the group; which, and when, is open,
for each member by itself. So some may have a sum that others do not. A configuration is prepared when all its members
have heard of it: their group is built then. How far a shadow has come is open until its stream ends or breaks off: then
it holds any of the versions that were sent, or, within a record, nothing.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from elastic_ps.torch.allreduce.agreement import BEGINS, LACKS
from tests.allreduce_model.coordinator import decide
from tests.allreduce_model.job import BrokenError, Job, Scope, Worker, with_worker
from tests.allreduce_model.shadow import follow
from tests.allreduce_model.workers import begin, end, hear, is_member


def start(scope: Scope) -> Job:
    founders = tuple(range(scope.members))
    workers = [Worker(BEGINS, fresh=True) for _ in founders]
    if scope.joins:
        workers.append(Worker(LACKS, current=-1, proven=False))
    return Job(tuple(workers), (founders,), planned=not scope.joins and scope.leaves < 0)


def actions(scope: Scope, job: Job) -> Iterator[tuple[str, Job]]:
    """Yield every action that is possible, with the state behind it."""
    for who, worker in enumerate(job.workers):
        if not worker.alive or worker.left:
            continue
        if worker.inbox:
            yield f"w{who} hears {worker.inbox[0]}", hear(scope, job, who)
        if not worker.proven:
            yield from follow(scope, job, who)
        if worker.op is None and not worker.failed and worker.source < 0 and is_member(job, who):
            yield from begin(scope, job, who)
        if worker.op is not None:
            yield from end(scope, job, who)
        if job.crashes < scope.crashes:
            dead = with_worker(job, who, replace(worker, alive=False, inbox=(), op=None))
            yield f"w{who} dies", replace(dead, crashes=job.crashes + 1)
    yield from decide(scope, job)


def check(before: Job, after: Job) -> None:
    """Raise `BrokenError` where a step leads to what must not be. What a shadow has followed does not count yet."""
    living = [each for each in after.workers if each.alive and not each.left and each.held >= 0 and each.proven]
    for one in living:
        for other in living:
            common = min(one.held, other.held)
            if one.history[:common] != other.history[:common]:
                raise BrokenError("two workers hold different parameters of one version")
        for version in range(min(one.held, len(after.reported))):
            if after.reported[version] != one.history[version]:
                raise BrokenError("the ledger tells another step than a worker has made")
    for old, new in zip(before.workers, after.workers, strict=True):
        if new.alive and old.proven and new.held < old.held:
            raise BrokenError("a worker goes back")


def check_end(scope: Scope, job: Job) -> None:
    """Raise `BrokenError` where nothing can happen any more, and the job is not at its end."""
    if job.lost or not any(worker.alive and worker.held >= 0 and worker.proven for worker in job.workers):
        return
    last = len(job.rosters) - 1 if job.plan is not None and job.plan.switched else job.in_force
    for who in job.rosters[last]:
        worker = job.workers[who]
        if worker.alive and (worker.held < scope.steps or worker.failed or worker.current != last):
            raise BrokenError(f"w{who} waits for ever")


@dataclass(frozen=True)
class Outcome:
    """What an exploration found; `broken` "": all holds. `trace`: the shortest way to what is broken."""

    states: int
    broken: str = ""
    trace: tuple[str, ...] = ()


def explore(scope: Scope) -> Outcome:
    """Try every order of actions, shortest first."""
    first = start(scope)
    came: dict[Job, tuple[Job, str] | None] = {first: None}
    coming = deque([first])
    while coming:
        job = coming.popleft()
        found = False
        try:
            for name, after in actions(scope, job):
                found = True
                last = name
                if after in came:
                    continue
                check(job, after)
                came[after] = (job, name)
                coming.append(after)
            if not found:
                last = "nothing more can happen"
                check_end(scope, job)
        except BrokenError as error:
            return Outcome(len(came), str(error), (*_trace(came, job), f"then: {last if found else ''} {error}"))
    return Outcome(len(came))


def _trace(came: dict[Job, tuple[Job, str] | None], job: Job) -> tuple[str, ...]:
    names: list[str] = []
    while (step := came[job]) is not None:
        job, name = step
        names.append(name)
    return tuple(reversed(names))
