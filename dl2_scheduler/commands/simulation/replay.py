"""This module is `dl2 simulate --from-history`: it asks again what a live cluster decided, and simulates its jobs."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.snapshot import JobId
from dl2_scheduler.commands.common import new_table, show, show_json
from dl2_scheduler.live.history import History
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.policies.registry import make_live_policy
from dl2_scheduler.replay.asked_again import Asked, ask_again
from dl2_scheduler.replay.costs import scaling_costs
from dl2_scheduler.replay.measured import SpeedFitter
from dl2_scheduler.replay.predicted import LivedSlots, Predicted, predict_lived
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
    agreement, speeds, lived = _Agreement(), SpeedFitter(), LivedSlots()
    with closing(History.of_folder(folder)) as history:  # which may be longer than memory
        for asked in ask_again(_seen_by(history.slots(), speeds, lived), policy, make_live_policy, rule):
            agreement.observe(asked, math.inf if as_json else _SHOWN)
        if lived.last is None:
            raise BadInput(f"the history in {folder} has no slot with jobs yet")
        if not as_json:
            _print_agreement(agreement, policy)
        chosen, speed_fit = policy or lived.last.policy, speeds.fit()
        cost = replace(scaling_costs(history.slots(), speed_fit).scaling, **given)
    predicted = predict_lived(lived, speed_fit, make_live_policy(chosen), rule, cost)
    if as_json:
        show_json({**_document(agreement, predicted, chosen), "cost": asdict(cost)})
    else:
        _print_predicted(predicted, chosen)
        say(f"scaling costs: start {cost.start:.1f} s, change {cost.change:.1f} s, join {cost.join:.1f} s")


def _seen_by(slots: Iterable[RecordedSlot], *observers: SpeedFitter | LivedSlots) -> Iterator[RecordedSlot]:
    for slot in slots:
        for each in observers:
            each.observe(slot)
        yield slot


class _OtherGrant(NamedTuple):
    """An `_OtherGrant` is what a job had in a slot, and what it would have been given: workers and servers."""

    slot: int
    policy: str
    job: JobId
    was: tuple[int, int]
    would_be: tuple[int, int]


@dataclass
class _Agreement:
    """An `_Agreement` counts how often a policy that was asked again decided alike.

    Attributes:
        slots: how many there were.
        grants: how many there were in them.
        same: those of them that were decided alike.
        other: those that were not, as far as they are shown.
    """

    slots: int = 0
    grants: int = 0
    same: int = 0
    other: list[_OtherGrant] = field(default_factory=list)

    def observe(self, asked: Asked, most: float) -> None:
        """Take the next slot; once there are so many to show, show none of it."""
        other = asked.other
        self.slots += 1
        self.grants += len(asked.recorded)
        self.same += len(asked.recorded) - len(other)
        if len(self.other) < most:
            self.other += [
                _OtherGrant(asked.slot, asked.policy, job, asked.recorded[job], asked.again[job]) for job in other
            ]


def _document(agreement: _Agreement, predicted: Sequence[Predicted], chosen: str) -> dict[str, Any]:
    jobs = [
        {
            "id": each.past.job.id,
            "model": each.past.job.model,
            "seconds": each.past.seconds,
            "predicted_seconds": each.seconds,
        }
        for each in predicted
    ]
    other = [each._asdict() for each in agreement.other]
    return {
        "policy": chosen,
        "slots": agreement.slots,
        "grants": agreement.grants,
        "agree": agreement.same / agreement.grants,
        "other": other,
        "jobs": jobs,
    }


def _print_agreement(agreement: _Agreement, policy: str | None) -> None:
    whom = f"{policy} decides" if policy else "the same policies decide"
    say(f"{agreement.slots} slots: {whom} as was done in {agreement.same} of {agreement.grants} grants")
    if not agreement.other:
        return
    table = new_table(slot=True, decided_by=False, job=False, had=True, would_have=True)
    for each in agreement.other[:_SHOWN]:
        was, would_be = ("+".join(map(str, counts)) for counts in (each.was, each.would_be))
        table.add_row(str(each.slot), each.policy, str(each.job), was, would_be)
    show(table)
    more = agreement.grants - agreement.same - _SHOWN
    if more > 0:
        say(f"and {more} more: --json has all")


def _print_predicted(predicted: Sequence[Predicted], chosen: str) -> None:
    if not predicted:
        return
    table = new_table(job=False, type=False, seconds=True, simulated=True, error=True)
    for done in predicted:
        error = "-" if done.error is None else f"{done.error:+.0%}"
        real = "-" if done.past.seconds is None else f"{done.past.seconds:.0f}"
        table.add_row(str(done.past.job.id), done.past.job.model, real, f"{done.seconds:.0f}", error)
    say(f"its jobs, simulated under {chosen} with the speeds and costs of this history:")
    show(table)
