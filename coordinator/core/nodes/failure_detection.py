"""Failure detection says whom the job waits for, until when, and what happens then; `expulsions` acts on it.

Four kinds of evidence blame a node (docs/reference/protocol.md, "Who is blamed"):

- *Silence*: its lease has run out while the coordinator hears others.
- *Separation*: it and a peer both report, and one of them cannot reach the other.
- *A missing answer* of a node that reports, to a directive that a node answers whatever its script does.
- *A wait between servers*, which run no script, without any progress for long.

A wait for a node whose script may be busy blames nobody (`delays`). It is told, and `elasticctl evict` ends it.

Nobody profits where a job without a checkpoint loses the last copy of a block, or its last worker: such a node gets
`LONG_SECONDS` to come back.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from coordinator.core.directives import awaited_to_sync, landed
from coordinator.core.nodes.delays import delays
from coordinator.core.nodes.partitions import Pair, best_cut
from coordinator.core.nodes.removals import fails_without, has_left, is_member, removal_cost
from coordinator.core.nodes.silence import heard_at, most_are_silent, silent, waited_for
from coordinator.core.plans.plan import Phase, Plan, PlanKind
from coordinator.core.state import State, Vitals
from elastic_ps.core.configuration import NodeId, Role
from elastic_ps.core.report_pace import report_seconds

GRACE = 0.5
"""Leases beyond the first that a node may be silent where no peer complains about it."""

SUSPICION = 3.0
"""Leases for which the fault may be here, when most nodes fall silent at once."""

PROMPT = 3.0
"""Leases in which a node answers a directive whose answer needs nothing but itself and its peers' connections."""

LONG_SECONDS = 600.0
"""Seconds without any progress, after which copying blocks, or loading them from a checkpoint, counts as stuck, and
for which a node is awaited without which the job would fail."""

_LIVING = 2
"""Times that a node reports in what is called lately: who lives has been heard then."""


class SuspicionVerdict(StrEnum):
    """A verdict says what happens to a suspect when its time is up."""

    EXPELLED = "expelled"
    JOB_FAILED = "expelled, and the job fails without it,"
    LEFT = "taken to have left"
    PLAN_GIVEN_UP = "the plan is given up"


@dataclass(frozen=True)
class Suspicion:
    """A suspicion names one node that the job waits for.

    Attributes:
        node: the suspect.
        why: evidence, for people: "has been silent", "has had no way to s1".
        since: unix seconds.
        until: when the verdict is carried out; None: it is not.
        verdict: on the suspect.
    """

    node: NodeId
    why: str
    since: float
    until: float | None = None
    verdict: SuspicionVerdict = SuspicionVerdict.EXPELLED

    def evidence(self, now: float) -> str:
        """Return what speaks against the node, without its name, as of `now` in unix seconds."""
        return f"{self.why} for {max(0.0, now - self.since):.0f} s"

    def text(self, now: float) -> str:
        """Return the suspicion as a sentence for people, as of `now` in unix seconds."""
        told = f"{self.node} {self.evidence(now)}"
        if self.until is None:
            return told
        left = max(0.0, self.until - now)
        outcome = self.verdict if self.verdict is SuspicionVerdict.PLAN_GIVEN_UP else f"{self.node} is {self.verdict}"
        return f"{told}: {outcome} in {left:.0f} s"


def suspicions(state: State, now: float) -> tuple[Suspicion, ...]:
    """Return all that stand at `now`, in unix seconds; the most urgent one of each node, waits without end last."""
    if state.job.ended or state.rebuilding is not None:
        return ()
    patient = (Suspicion(delay.node, delay.why, delay.since) for delay in delays(state, now))
    blamed = [*_silent(state, now), *_separated(state, now), *_unanswered(state), *_stuck(state, now)]
    quiet = silent(state, now, 0.5) if blamed else frozenset()  # who froze together did not report together
    found = [*(_spared(state, suspicion, quiet) for suspicion in blamed), *patient]
    urgent: dict[NodeId, Suspicion] = {}
    for suspicion in sorted(found, key=_urgency):
        urgent.setdefault(suspicion.node, suspicion)
    return tuple(urgent.values())


def _urgency(suspicion: Suspicion) -> tuple[bool, float]:
    return suspicion.until is None, suspicion.until or suspicion.since


def _spared(state: State, suspicion: Suspicion, quiet: frozenset[NodeId]) -> Suspicion:
    """Return a suspicion with more time for its node where the job would fail without it and all who are `quiet`.

    Who was waited for with another that has come back may be heard a moment later, and so has a lease from then on.
    """
    if suspicion.until is None or suspicion.verdict is not SuspicionVerdict.EXPELLED:
        return suspicion
    most = suspicion.since + LONG_SECONDS
    if fails_without(state, quiet | {suspicion.node}):
        return replace(suspicion, until=max(suspicion.until, most), verdict=SuspicionVerdict.JOB_FAILED)
    if suspicion.node not in state.spared:
        return suspicion
    return replace(
        suspicion, until=max(suspicion.until, min(most, state.spared[suspicion.node] + state.settings.lease))
    )


# ---- silence -----------------------------------------------------------------------------------------------------


def _silent(state: State, now: float) -> Iterator[Suspicion]:
    lease, job = state.settings.lease, state.job
    late = [name for name in job.nodes if now - heard_at(state, name, now) > lease / 2]
    if not late:
        return
    quiet = silent(state, now)
    doubt = state.doubted_since + SUSPICION * lease if state.doubted_since and most_are_silent(state, now) else 0.0
    deaf = not state.launchers and job.nodes.keys() <= quiet  # nobody would hear what the coordinator decides
    complaints = _complaints(state, quiet)
    for name in late:
        node, heard = job.nodes[name], heard_at(state, name, now)
        if node.departing or name in job.finished:
            yield Suspicion(name, "ends, and has been silent", heard, heard + lease, SuspicionVerdict.LEFT)
            continue
        patience = lease if name in complaints or not is_member(job, name) else (1 + GRACE) * lease
        until = None if doubt and deaf else max(heard + patience, doubt)
        verdict = SuspicionVerdict.LEFT if has_left(state, name) else SuspicionVerdict.EXPELLED
        yield Suspicion(name, "has been silent", heard, until, verdict)


def _complaints(state: State, quiet: frozenset[NodeId]) -> frozenset[NodeId]:
    """Return whom a node that is not `quiet` cannot reach."""
    heard = (state.vitals[name] for name in state.job.nodes.keys() - quiet if name in state.vitals)
    return frozenset(wait.peer for vitals in heard for wait in vitals.waits if wait.unreachable)


def _waits(state: State) -> bool:
    """Return whether any node has told that it waits for a peer, which few do."""
    return any(vitals.waits for vitals in state.vitals.values())


# ---- separation --------------------------------------------------------------------------------------------------


def separated(state: State, now: float) -> dict[Pair, float]:
    """Return the pairs of nodes that both live and of which one cannot reach the other, and since when.

    A node that has stopped is unreachable too, before it is silent. So a pair counts only where both were heard well
    after the one lost the other, and lately: who has told it and stopped then cannot take it back. And what they tell
    of a time in which this coordinator did not hear one of them, as its machine or its network stood still, may be over
    when it hears of it. A machine's clock may have stood still with it, so that nothing was missed by it: a node tells
    such a thing half a lease after it has begun, and what it tells for the first time is taken to be no older.
    """
    if not _waits(state):
        return {}
    plan = state.job.plan
    involved = waited_for(state.job) & ({*state.job.members} | set(plan.audience if plan is not None else ()))
    found: dict[Pair, float] = {}
    lease = state.settings.lease
    lately = now - _LIVING * report_seconds(lease)
    for name in involved:
        for wait in state.vitals[name].waits if name in state.vitals else ():
            if wait.unreachable and wait.peer in involved and wait.peer != name:
                pair = frozenset({name, wait.peer})
                ends = [state.vitals.get(end, Vitals(now, back=now)) for end in pair]
                since = max(wait.since, wait.told - lease / 2, *(end.back for end in ends))
                if min(end.heard for end in ends) >= max(since + lease / 2, lately):
                    found[pair] = min(since, found.get(pair, since))
    return found


def severed(state: State, names: Collection[NodeId]) -> bool:
    """Return whether one of some nodes has just said that it cannot reach another of them."""
    return any(
        wait.unreachable and wait.peer in names
        for name in names
        if name in state.vitals
        for wait in state.vitals[name].waits
    )


def _separated(state: State, now: float) -> Iterator[Suspicion]:
    pairs = separated(state, now)
    if not pairs:
        return
    leave = best_cut(pairs, lambda names: removal_cost(state.job, names))
    for name in sorted(leave):
        mine = {pair: since for pair, since in pairs.items() if name in pair}
        peers = sorted(end for pair in mine for end in pair - {name})
        since = min(mine.values())
        yield Suspicion(name, f"has had no way to {', '.join(peers)}", since, since + state.settings.lease)


def _stuck(state: State, now: float) -> Iterator[Suspicion]:
    """Yield servers that can be reached, and give another one nothing that it waits for.

    Who itself waits for another one is not to blame, unless all of them do.
    """
    if not _waits(state):
        return
    servers = {name for name in waited_for(state.job) if state.job.nodes[name].role is Role.SERVER}
    kept: dict[NodeId, list[tuple[float, NodeId, str]]] = {}
    for name in servers - silent(state, now):
        for wait in state.vitals[name].waits if name in state.vitals else ():
            if wait.peer in servers and wait.peer != name and not wait.unreachable:
                kept.setdefault(wait.peer, []).append((max(wait.since, state.awake_since), name, wait.what))
    waiting = {name for waits in kept.values() for _, name, _ in waits}
    for peer in kept.keys() - waiting or kept.keys():
        since, name, what = min(kept[peer])
        yield Suspicion(peer, f"has kept {name} waiting ({what})", since, since + LONG_SECONDS)


# ---- missing answers ---------------------------------------------------------------------------------------------


def _unanswered(state: State) -> Iterator[Suspicion]:
    """Yield those whose answer the plan under way needs before anything else can happen."""
    plan = state.job.plan
    if plan is None or not plan.trail:
        return
    since = max(plan.trail[-1].at, plan.times.first_switched, state.awake_since)
    missing, answer = _missing(state, plan)
    verdict = (
        SuspicionVerdict.PLAN_GIVEN_UP
        if plan.kind is PlanKind.SCALE and plan.phase is not Phase.ARMED
        else SuspicionVerdict.EXPELLED
    )
    quick = plan.phase is Phase.ASSIGNED and not plan.restore
    bound = PROMPT * state.settings.lease if quick else LONG_SECONDS
    for name in missing:
        grew = state.vitals[name].grew if name in state.vitals else 0.0  # who loads or copies tells how much by now
        begun = max(since, grew)
        yield Suspicion(name, f"has not answered {answer} of plan {plan.id}", begun, begun + bound, verdict)


def _missing(state: State, plan: Plan) -> tuple[list[NodeId], str]:
    """Return who has not answered yet, and what.

    SWITCHED only of workers, once that is decided: before, they finish a step, which may take as long as it likes; and
    a server first hands over what another may have to take (`_stuck`).
    """
    answers, job = state.answers, state.job
    needed = [name for name in plan.audience if name in job.nodes and name not in job.finished]
    if plan.phase is Phase.ASSIGNED:
        return [name for name in needed if name not in answers.prepared], "PREPARED"
    if plan.phase is Phase.SYNCING:
        return [name for name in needed if name in awaited_to_sync(job, plan) - answers.synced], "SYNCED"
    if plan.phase is Phase.ARMED and not plan.decided and not answers.until:
        return [name for name in needed if name not in answers.armed | answers.switched], "ARMED"
    if plan.phase is Phase.ARMED and plan.decided and not landed(state):
        workers = [name for name in needed if job.nodes[name].role is Role.WORKER]
        return [name for name in workers if name not in answers.switched], "SWITCHED"
    return [], ""
