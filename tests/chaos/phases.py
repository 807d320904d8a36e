"""How a job is brought to a phase, and kept in it until it has been hit."""

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.chaos.disturbed import DisturbedJob, Hung, Node, chosen, stopped
from tests.world.faults.cells import DEATH, FILLING, PLAN_PHASES, REST, RESTORE, SERVER, WORKER

_SECONDS = 50.0
_INIT, _READY = "hold-init", "hold"
_MEMBERS = ("member",)
_CAUSES = {DEATH: "death of ", FILLING: "no follower"}
"""What the cause of such a plan has in it."""

Hit = Callable[[], None]


@contextmanager
def reached(
    job: DisturbedJob, phase: str, chance: random.Random, choose: Callable[[], tuple[list[Node], Hit]]
) -> Iterator[tuple[list[Node], int]]:
    """Bring a job that is whole to a phase and hit it there. Raises Missed where the phase does not come, or is over.

    Joining workers are held before they join, or before they are ready; a member that is not hit is stopped for a
    moment where a phase would be over as soon as it has answered.

    Args:
        job: at rest.
        phase: one of `cells.PHASES`.
        chance: for who is stopped.
        choose: called when all whom the fault may meet are there; returns them, and what does it to them.

    Yields:
        The nodes that were hit, and the plan's id, or 0. The phase is held no more when the block begins.
    """
    with ExitStack() as held:
        if phase == REST:
            targets, hit = choose()
        elif phase == RESTORE:
            _restoring(job, chance, held)
            targets, hit = choose()
        elif phase in (DEATH, FILLING):
            targets, hit = choose()
            _mourning(job, phase, chance, held, targets)
        else:
            assert phase in PLAN_PHASES
            targets, hit = _planned(job, phase, chance, held, choose)
        plan = _plan(job) if phase not in (REST, RESTORE) else 0
        hit()
    yield targets, plan


def _plan(job: DisturbedJob) -> int:
    status = job.job.status()
    return status.plan.id if status is not None else 0


def _restoring(job: DisturbedJob, chance: random.Random, held: ExitStack) -> None:
    """Who has the parameters is killed; the job restores, its workers held before they join.

    That is a server, all where they follow each other, or all workers where there are no servers.
    """
    holders = job.nodes(SERVER, _MEMBERS) or job.nodes(WORKER, _MEMBERS)
    have_them_all = job.replicas or not job.base[1]
    held.enter_context(job.held(_INIT))
    for victim in holders if have_them_all else [chosen(holders, chance)]:
        os.kill(victim.pid, signal.SIGKILL)
    _come(
        job,
        lambda status: (
            status.phase in ("restoring", "starting")
            and len(job.waiting(_INIT)) == status.wanted_workers
            and sum(node.member.role == 2 for node in status.nodes) == status.wanted_servers
        ),
        _SECONDS + 3 * job.lease,
        "a restore with its processes there",
    )


def _planned(
    job: DisturbedJob, phase: str, chance: random.Random, held: ExitStack, choose: Callable[[], tuple[list[Node], Hit]]
) -> tuple[list[Node], Hit]:
    place = _INIT if phase in ("REGISTERED", "ASSIGNED") else _READY
    path = held.enter_context(job.held(place))
    job.scale(job.grown)
    approach = "REGISTERED" if place == _INIT else "SYNCING"
    _come(job, lambda status: _joiners_wait(job, status, approach, place), _SECONDS, f"a plan in {approach}")
    targets, hit = choose()
    if phase == "ASSIGNED":
        members = job.nodes("", _MEMBERS)
        others = [node for node in members if node.pid not in {target.pid for target in targets}]
        held.enter_context(stopped(chosen(others or members, chance).pid))  # a link may be of all members
    if phase in ("ASSIGNED", "ARMED"):
        path.unlink()
        _spin(job, phase)
    return targets, hit


def _come(job: DisturbedJob, look: Callable[[Any], Any], seconds: float, what: str, pause: float = 0.05) -> Any:
    """As `DisturbedJob.until`. Raises Missed: processes that start slowly are given up, and a plan with them."""
    try:
        return job.until(look, seconds, what, pause)
    except Hung as error:
        raise Missed(str(error)) from error


def _joiners_wait(job: DisturbedJob, status: Any, phase: str, place: str) -> bool:
    there = sum(node.member.role == 2 for node in status.nodes) == status.wanted_servers
    return status.plan.phase == phase and there and bool(job.waiting(place))


def _spin(job: DisturbedJob, phase: str) -> None:
    """Look without a pause until the plan is in a phase that may be short. Raises Missed."""
    beyond = ("", *PLAN_PHASES[PLAN_PHASES.index(phase) :])

    def looked(status: Any) -> str | None:
        return (status.plan.phase or "none") if status.plan.phase in beyond else None

    if (found := _come(job, looked, _SECONDS, f"a plan in {phase}", pause=0.001)) != phase:
        raise Missed(f"the plan's phase was {found} when {phase} was to be hit")


def _mourning(job: DisturbedJob, phase: str, chance: random.Random, held: ExitStack, targets: list[Node]) -> None:
    """Kill a node that is not to be hit; wait for the plan without it, or that which makes followers. Raises Missed.

    Another one is stopped for a moment, as a death's plan needs its answer.
    """
    met = {target.pid for target in targets}
    others = [node for node in job.nodes("", _MEMBERS) if node.pid not in met]
    role = SERVER if job.replicas else WORKER
    victim = chosen([node for node in others if node.role == role] or others, chance)
    if phase == DEATH and (left := [node for node in others if node.pid != victim.pid]):
        held.enter_context(stopped(chosen(left, chance).pid))
    os.kill(victim.pid, signal.SIGKILL)

    def looked(status: Any) -> str:
        if _CAUSES[phase] in status.plan.cause:
            return phase
        known = any(node.member.id == victim.name for node in status.nodes)
        return "" if known or (phase == FILLING and status.plan.id) or not job.is_whole(status) else "over"

    if _come(job, looked, _SECONDS, f"a plan of the kind {phase}", pause=0.001) != phase:
        raise Missed(f"the plan of the kind {phase} was over when it was to be hit")


class Missed(Exception):
    """A short phase was over before it could be hit, or did not come; whether the job is well is another question."""
