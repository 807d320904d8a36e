"""This module asks a placement policy about jobs that are not there, so that no real one waits for the compiler."""

import logging
import time

from dl2_scheduler.cluster.hardware.live_view import LiveJob, LiveNodes, live_view, plain_hardware
from dl2_scheduler.cluster.hardware.machines import CPU, GPU, Machines
from dl2_scheduler.cluster.hardware.view import PlacementView
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.placement.task_moves import MoveCost, MoveTerms
from dl2_scheduler.cluster.snapshot import JobState
from dl2_scheduler.policies.placement.registry import NamedPlacement
from dl2_scheduler.policies.placement.reopened import ReopenedPlacement
from dl2_scheduler.policies.user_policy import is_own

log = logging.getLogger(__name__)

_NODES, _CPUS = ("node-0", "node-1"), 8
_TOLD_SECONDS = 2.0
"""What takes no longer is not worth a line in the log."""


def rehearse(policy: NamedPlacement | ReopenedPlacement) -> None:
    """Let one of our policies place, explain and move once: that compiles what the machine has not compiled yet.

    In a slot it would take longer, beside jobs that use all cores, and everybody would wait. A user's own policy
    is not asked: it may keep what it sees.

    Args:
        policy: of a cluster that is about to be served.
    """
    if is_own(policy.name):
        return
    began = time.monotonic()
    known = policy.knows.models[:1] if policy.knows is not None else ()
    view = _view(*known, "unknown")
    try:
        policy.explain(view, policy.place(view.copied()), _NODES)
        policy.moves(view, MoveTerms(MoveCost(0.0, 0.0, ""), most=1), _NODES)
    except Exception as error:  # noqa: BLE001 - agents may belong to another cluster; a guard asks about real jobs
        log.info("placement: %s is compiled when it is first asked: %s", policy.name, error)
    if (seconds := time.monotonic() - began) > _TOLD_SECONDS:
        log.info("placement: %s was compiled in %.0f s, once after an installation", policy.name, seconds)


def _view(*models: str) -> PlacementView:
    """Return two nodes with a running job of the first type, beside which jobs of all types miss their places."""
    machines = Machines((plain_hardware(_CPUS, 0),) * len(_NODES))
    took = {CPU: 1.0, GPU: 0.0}
    jobs = []
    for number, model in enumerate((models[0], *models)):
        job = Job(f"{model}-{number}", 0.0, model, 10.0, 1000.0, took, took)
        demand, runs = ((1.0, 0.0), (1.0, 0.0)), number == 0
        placed, missing = (((0,), (0,)), (0, 0)) if runs else (((), ()), (1, 1))
        jobs.append(LiveJob(JobState(job, 1.0 if runs else 0.0), number, demand, placed, missing, 100.0 * runs))
    return live_view(1.0, LiveNodes(_NODES, machines, ((_CPUS - 2.0, 0.0), (_CPUS, 0.0))), jobs)
