"""This module is `dl2 simulate --from-history`: it asks again what a live cluster decided, and simulates its jobs."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.commands.common import new_table, show, show_json
from dl2_scheduler.live.history import History
from dl2_scheduler.policies.registry import make_live_policy
from dl2_scheduler.replay.asked_again import Asked, ask_again
from dl2_scheduler.replay.costs import scaling_costs
from dl2_scheduler.replay.measured import fit_speeds
from dl2_scheduler.replay.predicted import Predicted, predict
from elastic_ps.system.terminal import say

_SHOWN = 20


def replay(folder: Path, policy: str | None, rule: NodeRule, given: Mapping[str, float], as_json: bool) -> None:
    """Ask a policy about every slot of a history, and simulate its jobs under it.

    Args:
        folder: the folder of the cluster.
        policy: the policy that is asked; None: the one that decided, and for the simulation the last of them.
        rule: the rule by which tasks find their node.
        given: costs of scaling in the simulation, by their field in `ScalingCost`; the others are as in the history.
        as_json: print for programs.

    Raises:
        BadInput: there is no such history, nothing in it, or no such policy.
    """
    with closing(History.of_folder(folder)) as history:
        slots = list(history.slots())
    if not slots:
        raise BadInput(f"the history in {folder} has no slot with jobs yet")
    asked = list(ask_again(slots, policy, make_live_policy, rule))
    chosen = policy or slots[-1].policy
    speed_fit = fit_speeds(slots)
    cost = replace(scaling_costs(slots, speed_fit).scaling, **given)
    predicted = predict(slots, speed_fit, make_live_policy(chosen), rule, cost)
    if as_json:
        show_json({**_document(asked, predicted, chosen), "cost": asdict(cost)})
    else:
        _print(asked, predicted, policy, chosen)
        say(f"scaling costs: start {cost.start:.1f} s, change {cost.change:.1f} s, join {cost.join:.1f} s")


def _agreement(asked: Sequence[Asked]) -> tuple[int, int]:
    """Return how many grants are the same, and how many there are."""
    grants = sum(len(each.recorded) for each in asked)
    return grants - sum(len(each.other) for each in asked), grants


def _document(asked: Sequence[Asked], predicted: Sequence[Predicted], chosen: str) -> dict[str, Any]:
    same, grants = _agreement(asked)
    jobs = [
        {
            "id": each.past.job.id,
            "model": each.past.job.model,
            "seconds": each.past.seconds,
            "predicted_seconds": each.seconds,
        }
        for each in predicted
    ]
    other = [
        {"slot": each.slot, "policy": each.policy, "job": job, "was": each.recorded[job], "would_be": each.again[job]}
        for each in asked
        for job in each.other
    ]
    return {
        "policy": chosen,
        "slots": len(asked),
        "grants": grants,
        "agree": same / grants,
        "other": other,
        "jobs": jobs,
    }


def _print(asked: Sequence[Asked], predicted: Sequence[Predicted], policy: str | None, chosen: str) -> None:
    same, grants = _agreement(asked)
    whom = f"{policy} decides" if policy else "the same policies decide"
    say(f"{len(asked)} slots: {whom} as was done in {same} of {grants} grants")
    changes = [(each, job) for each in asked for job in each.other]
    if changes:
        table = new_table(slot=True, decided_by=False, job=False, had=True, would_have=True)
        for each, job in changes[:_SHOWN]:
            was, would_be = ("+".join(map(str, of[job])) for of in (each.recorded, each.again))
            table.add_row(str(each.slot), each.policy, str(job), was, would_be)
        show(table)
        if len(changes) > _SHOWN:
            say(f"and {len(changes) - _SHOWN} more: --json has all")
    if predicted:
        table = new_table(job=False, type=False, seconds=True, simulated=True, error=True)
        for done in predicted:
            error = "-" if done.error is None else f"{done.error:+.0%}"
            real = "-" if done.past.seconds is None else f"{done.past.seconds:.0f}"
            table.add_row(str(done.past.job.id), done.past.job.model, real, f"{done.seconds:.0f}", error)
        say(f"its jobs, simulated under {chosen} with the speeds and costs of this history:")
        show(table)
