"""This module is the guard's program: told of slots, it compares the policy with the baseline.

    python -m dl2_scheduler.guard.program FOLDER RULE BASELINE

FOLDER is the cluster's, RULE a `NodeRule`. It is told lines {"slot": 3, "policy": NAME}, and says lines that are
`Comparison`s, or {"slot": 3, "policy": NAME, "error": why it could not, "unusable": whether the policy can be read no
more}.
"""

import json
import logging
import sys
from contextlib import closing
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.snapshot import Snapshot
from dl2_scheduler.guard.counterfactual import completion
from dl2_scheduler.guard.decision import Comparison
from dl2_scheduler.live.history import History
from dl2_scheduler.live.side_program import be_nice, told
from dl2_scheduler.policies.registry import make_live_policy
from dl2_scheduler.policies.rules.speed_fit import EXPLORING, FittedSpeeds
from dl2_scheduler.world_model.future import only_fitting
from dl2_scheduler.world_model.observed import ObservedCluster
from elastic_ps.system.printable import LogLines, log_to_stderr

log = logging.getLogger(__name__)

_SECONDS = 5.0  # of computing, for the futures with one kind of speeds


class Comparing:
    """A `Comparing` compares policies at the end of a history, which grows.

    Args:
        history: the history of the cluster.
        rule: the rule by which tasks find their node.
        baseline: the baseline's name.
    """

    def __init__(self, history: History, rule: NodeRule, baseline: str):
        self._rule, self._baseline = rule, baseline
        self._observed = ObservedCluster.recent(history)
        self._last: Comparison | None = None

    def compared(self, policy: str) -> Comparison | None:
        """Compare a policy with the baseline from the last slot's state on; None: there is nothing new to compare.

        Slots without jobs are in no history, so that the last one may have been compared before.

        A policy that is worse by the speeds that are expected is compared once more by those that dreams hope for, and
        the kinder comparison counts: one that tries what nobody has tried is not bad for that, and hope ends with the
        reports of what was tried.

        Args:
            policy: the policy's name; it is read anew.

        Raises:
            BadInput: it can be read no more.
            Exception: whatever the policy raises.
        """
        self._observed.catch_up()
        observed = self._observed
        if observed.present is None:
            return None
        now = only_fitting(observed.present)
        if not now.jobs or (self._last is not None and (self._last.slot, self._last.policy) == (now.slot, policy)):
            return None
        self._last = self._kinder(policy, now)
        return self._last

    def _kinder(self, policy: str, now: Snapshot) -> Comparison:
        found = self._played(policy, now, self._observed.fitted)
        if found.above <= 0:
            return found
        hopeful = self._played(policy, now, self._observed.fitted.hopeful(EXPLORING))
        return min(found, hopeful, key=attrgetter("above"))

    def _played(self, policy: str, now: Snapshot, speeds: FittedSpeeds) -> Comparison:
        """Play the futures of the present with these speeds."""
        players = [make_live_policy(name) for name in (policy, self._baseline)]
        observed = self._observed
        (own, baseline), jobs = completion(now, players, speeds, observed.cost, self._rule, _SECONDS, observed.waited)
        return Comparison(now.slot, policy, own, baseline, jobs)


def main() -> None:
    """Run the program; see the module."""
    be_nice()
    log_to_stderr(LogLines())
    folder, rule, baseline = sys.argv[1:]
    with closing(History.of_folder(Path(folder))) as history:
        comparing = Comparing(history, NodeRule(int(rule)), baseline)
        before = ""
        for line in told():
            asked = json.loads(line)
            try:
                found = comparing.compared(asked["policy"])
            except Exception as error:
                why, unusable = f"{type(error).__name__}: {error}", isinstance(error, BadInput)
                if why != before:  # so that no log fills the disk
                    log.exception("slot %d: %s", asked["slot"], asked["policy"])
                before = why
                print(json.dumps({**asked, "error": why, "unusable": unusable}), flush=True)
                continue
            before = ""
            if found is not None:
                print(json.dumps(asdict(found)), flush=True)


if __name__ == "__main__":
    main()
