"""A delay is a wait that is nobody's fault: who is waited for lives, and its script may take as long as it likes.

So they end nobody. But people are told of them, for a script may hang, and `elasticctl evict` ends it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from coordinator.core.batches import async_batches, barriers
from coordinator.core.checkpoints import saves_in_the_way
from coordinator.core.directives import awaited_arrivals, awaited_followers, awaited_steps, landed, unextended
from coordinator.core.plans.plan import Phase
from coordinator.core.state import State
from elastic_ps.core.configuration import NodeId, Role

_STORAGE = "the storage"


@dataclass(frozen=True)
class Delay:
    """A delay names one node that is waited for.

    Attributes:
        node: who; a storage has no name.
        why: what it keeps from going on, for people: "has kept w0 waiting (...)".
        since: unix seconds.
    """

    node: NodeId
    why: str
    since: float


def delays(state: State, now: float) -> Iterator[Delay]:
    """Yield all that stand at `now`, in unix seconds; a node may be in several."""
    yield from _peers(state, now)
    yield from _growth(state)
    yield from _requests(state)
    yield from _barriers(state)
    yield from _batch_requests(state)
    yield from _switch(state)
    yield from _saves(state)


def _peers(state: State, now: float) -> Iterator[Delay]:
    """Yield peers that answer their probes and are waited for all the same."""
    for name, vitals in state.vitals.items():
        if name in state.job.nodes and now - vitals.heard <= state.settings.lease:
            for wait in vitals.waits:
                if wait.peer in state.job.nodes and not wait.unreachable:
                    yield Delay(wait.peer, _kept([name], wait.what), wait.since)


def _growth(state: State) -> Iterator[Delay]:
    """Yield those who have not confirmed what is declared: they are asked by each growth, stream, start and plan."""
    asked = max(state.grown_at, state.awake_since, state.job.plan.times.assigned if state.job.plan is not None else 0.0)
    for name in sorted(unextended(state)):
        opened = state.vitals[name].listening if name in state.vitals else 0.0
        yield Delay(name, "has not confirmed what was declared last", max(asked, opened))


def _requests(state: State) -> Iterator[Delay]:
    """Yield servers that run what a script has brought: rules of its optimizer, handlers of its commands."""
    servers = [server.id for server in state.job.configuration.servers] if state.job.configuration is not None else []
    for trial in state.trials:
        why = _kept((each.node for each in state.declarations if each.optimizer == trial.optimizer), "an optimizer")
        for name in servers:
            if name in state.job.nodes and name not in trial.answers:
                yield Delay(name, why, trial.since)
    for run in state.running:
        for name in servers:
            if name in state.job.nodes and name in run.waiting:
                yield Delay(name, "has not run a script's command", run.since)


def _barriers(state: State) -> Iterator[Delay]:
    for place in sorted({barrier.place for barrier in state.barriers}):
        here = [barrier for barrier in state.barriers if barrier.place == place]
        why = _kept((barrier.node for barrier in here), "in a barrier")
        for name in sorted(barriers.missing(state, place)):
            yield Delay(name, why, min(barrier.since for barrier in here))


def _batch_requests(state: State) -> Iterator[Delay]:
    """Yield those for whom draws of batches wait: at an epoch's end, and under ssp."""
    data = state.job.data
    if data is None or data.is_sync:
        return
    kept: dict[tuple[NodeId, str], dict[NodeId, float]] = {}
    for draw in state.draws:
        for name, what in async_batches.awaited(state.book, draw.node, data).items():
            waiting = kept.setdefault((name, what), {})
            waiting[draw.node] = min(draw.since, waiting.get(draw.node, draw.since))
    for (name, what), waiting in kept.items():
        yield Delay(name, _kept(waiting, what), min(waiting.values()))


def _switch(state: State) -> Iterator[Delay]:
    """Yield those without whom an armed plan neither comes into force nor ends."""
    plan, answers = state.job.plan, state.answers
    if plan is None or plan.phase is not Phase.ARMED or not plan.trail:
        return
    if answers.until and not plan.decided:  # after a restart; who is silent is told of as such
        begun = answers.until - state.settings.lease
        for name in sorted(answers.unheard & state.job.nodes.keys()):
            yield Delay(name, f"has not said whether it has switched (plan {plan.id})", begun)
        return
    since = max(plan.trail[-1].at, plan.times.last_switched if landed(state) else plan.times.first_switched)
    needed = [name for name in plan.audience if name in state.job.nodes and name not in state.job.finished]
    late = [name for name in needed if name not in answers.switched]
    arriving, behind = awaited_arrivals(state, plan), awaited_followers(state, plan)
    if not landed(state) and plan.decided:
        why, names = "has not answered SWITCHED", late
    elif not landed(state):
        why, names = f"has not come to version {plan.clock}", _at_work(state, late) or late
    elif arriving:
        why, names = "does not hold its new blocks yet", [name for name in needed if name in arriving]
    elif behind:
        why, names = "has blocks that their new followers do not hold yet", [name for name in needed if name in behind]
    else:
        stepless = awaited_steps(state, plan)
        why = "has made no step yet in the new configuration"
        names = _at_work(state, [name for name in needed if name in stepless])
    for name in names:
        yield Delay(name, f"{why} (plan {plan.id})", since)


def _saves(state: State) -> Iterator[Delay]:
    """Yield those who write the checkpoint that a plan or a stop waits for."""
    saving, plan = state.saving, state.job.plan
    if saving is None or not saves_in_the_way.keeps_waiting(state):
        return
    since = max(saving.begun, plan.trail[-1].at) if plan is not None and plan.trail else saving.begun
    for name in sorted(saves_in_the_way.awaited(state)):
        yield Delay(name, f"has not saved its blocks of {saving.url} yet", since)
    if saving.writing:
        yield Delay(_STORAGE, f"has not taken the manifest of {saving.url} yet", since)


def _at_work(state: State, names: Iterable[NodeId]) -> list[NodeId]:
    """Return the workers among some nodes whose scripts are at work: the others wait for these themselves."""
    nodes, finished = state.job.nodes, state.job.finished
    workers = [name for name in names if name in nodes and nodes[name].role is Role.WORKER and name not in finished]
    idle = {barrier.node for barrier in state.barriers} | {draw.node for draw in state.draws}
    idle |= {name for name, vitals in state.vitals.items() if vitals.exchanging}
    return [name for name in workers if name not in idle] or workers


def _kept(waiting: Iterable[NodeId], what: str) -> str:
    return f"has kept {', '.join(sorted(waiting))} waiting ({what})"
