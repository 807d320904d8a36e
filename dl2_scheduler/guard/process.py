"""This module is the guard beside the loop: it takes what the guard's program found, and acts on it."""

import json
import logging
import sys
from dataclasses import replace
from pathlib import Path

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.guard.decision import Comparison, GuardSettings, PolicyStanding, lost, pardon, seen, verdict
from dl2_scheduler.live.policies import Policies
from dl2_scheduler.live.side_program import SideProgram
from dl2_scheduler.policies.learnt_names import DL2

log = logging.getLogger(__name__)


class Guard:
    """A `Guard` compares the learnt policy that was asked for, or else the learnt shadow, with the fallback.

    See `SlotObserver`.

    Args:
        policies: the policies of the cluster.
        settings: how much worse the policy may be, and for how long.
        folder: the folder of the cluster.
        rule: the rule by which tasks find their node.
    """

    def __init__(self, policies: Policies, settings: GuardSettings, folder: Path, rule: NodeRule):
        self._policies, self._settings = policies, settings
        command = [sys.executable, "-m", "dl2_scheduler.guard.program", str(folder), str(int(rule))]
        self._side = SideProgram("the guard", [*command, policies.fallback_name], folder / "logs" / "guard.log")
        self._standing = PolicyStanding()
        self._apart = -1  # the last slot that was decided by another than the learnt policy, or before it was chosen
        self._uses = policies.uses
        self._error = ""

    def before(self, slot: int) -> None:
        """See `Beside.before`."""
        if self._policies.uses != self._uses:  # whoever chooses a policy, the same one too, trusts it
            self._uses, self._apart = self._policies.uses, slot - 1
            self._standing = replace(self._standing, worse=0, good=0)
        for found in self._side.said():
            before, self._error = self._error, found.get("error", "")
            if not self._error:
                self._see(Comparison(**found))
                continue
            self._standing = replace(self._standing, good=0)
            if self._error != before:
                log.error("guard: slot %d: %s could not be compared: %s", slot, found["policy"], self._error)
            if found["unusable"]:
                self._policies.renew(found["policy"])
        self._judge()
        choice = self._policies.choice
        if choice.fallen or choice.stands_in or choice.policy != self._policies.in_use(DL2):
            self._apart = slot
            self._standing = replace(self._standing, worse=0)

    def _see(self, comparison: Comparison) -> None:
        self._standing = seen(self._standing, comparison, self._settings)
        if comparison.slot <= self._apart:  # it may be told when the policy already decides again
            self._standing = replace(self._standing, worse=0)

    def _judge(self) -> None:
        """Take the policy out where it is worse, and let it decide again where it has long been no worse."""
        choice, fallback = self._policies.choice, self._policies.fallback_name
        if self._standing.policy != choice.policy or (choice.stands_in and not choice.fallen):
            self._standing = replace(self._standing, worse=0, good=0)  # once it decides (again), it has its slots
        elif not choice.fallen:
            self._standing = replace(self._standing, good=0)  # it counts while another decides
            if why := verdict(self._standing, self._settings, fallback):
                self._policies.fall_back(why)
                self._standing = lost(self._standing)
        elif why := pardon(self._standing, self._settings, fallback):
            self._policies.come_back(why)
            self._standing = replace(self._standing, worse=0, good=0)

    def after(self, slot: int) -> None:
        """See `Beside.after`."""
        if (name := self._policies.in_use(DL2)) is not None:
            self._side.tell(json.dumps({"slot": slot, "policy": name}))

    @property
    def summary(self) -> str:
        """Return what was found last, for people."""
        last = self._standing.last
        if self._error or last is None:
            return self._error or self._side.trouble
        return (
            f"slot {last.slot}: {last.jobs} jobs end after {last.own:.1f} slots under {last.policy}, after "
            f"{last.baseline:.1f} under {self._policies.fallback_name} ({last.above:+.0%})"
        )

    def close(self) -> None:
        """End its program."""
        self._side.close()
