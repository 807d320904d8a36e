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
from pathlib import Path

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.guard.counterfactual import completion, with_samples
from dl2_scheduler.guard.decision import Comparison
from dl2_scheduler.live.history import History
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.live.side_program import be_nice, told
from dl2_scheduler.policies.registry import make_live_policy
from dl2_scheduler.policies.rules.speed_fit import FittedSpeeds
from dl2_scheduler.replay.costs import costs_of
from dl2_scheduler.replay.measured import MeasuredSpeeds
from dl2_scheduler.replay.scalings import Scalings
from dl2_scheduler.sim.lanes import ScalingCost
from elastic_ps.system.printable import LogLines, log_to_stderr

log = logging.getLogger(__name__)

_SECONDS = 10.0  # of computing, for a comparison
_REMEMBERED = 100  # starts, joins and ends, each: their mean is known well enough, and follows the machine's load


class Comparing:
    """A `Comparing` goes through a history once, as it grows, and compares policies at its end.

    Args:
        history: the history of the cluster.
        rule: the rule by which tasks find their node.
        baseline: the baseline's name.
    """

    def __init__(self, history: History, rule: NodeRule, baseline: str):
        self._history, self._rule, self._baseline = history, rule, baseline
        self._fitted = FittedSpeeds()
        self._samples: dict[str, float] = {}
        self._speeds = MeasuredSpeeds()
        self._scalings = Scalings(self._speeds.means, _REMEMBERED)
        self._ended = -1  # the last slot whose outcome was seen
        self._last: RecordedSlot | None = None

    def compared(self, policy: str) -> Comparison | None:
        """Compare a policy with the baseline from the last slot's state on; None: there is nothing to compare.

        Args:
            policy: the policy's name; it is read anew.

        Raises:
            BadInput: it can be read no more.
            Exception: whatever the policy raises.
        """
        self._catch_up()
        if self._last is None:
            return None
        now, both = with_samples(self._last.snapshot, self._samples, self._fitted), (policy, self._baseline)
        players = [make_live_policy(name) for name in both]
        (own, baseline), jobs = completion(now, players, self._fitted, self.cost, self._rule, _SECONDS)
        return Comparison(now.slot, policy, own, baseline, jobs) if jobs else None

    @property
    def cost(self) -> ScalingCost:
        """The cost of scaling, as far as the history tells."""
        return costs_of(self._scalings).scaling

    def _catch_up(self) -> None:
        """Read what the history has got since the last time.

        What came of the last slot is known only when the next one has begun: it is read twice.
        """
        for slot in self._history.slots(after=self._ended):
            number = slot.snapshot.slot
            if self._last is None or number > self._last.snapshot.slot:
                self._fitted.observe(slot.snapshot.reports)
                told = [state.job for state in slot.snapshot.jobs if state.job.samples_known]
                self._samples |= {job.model: job.samples_per_epoch for job in told}
            if slot.outcome is not None:
                self._speeds.observe(slot)
                self._scalings.observe(slot)
                self._ended = number
            self._last = slot


def main() -> None:
    """Run the program; see the module."""
    be_nice()
    log_to_stderr(LogLines())
    folder, rule, baseline = sys.argv[1:]
    with closing(History.of_folder(Path(folder))) as history:
        comparing = Comparing(history, NodeRule(int(rule)), baseline)
        for line in told():
            asked = json.loads(line)
            try:
                found = comparing.compared(asked["policy"])
            except Exception as error:
                log.exception("slot %d: %s", asked["slot"], asked["policy"])
                unusable = isinstance(error, BadInput)
                why = f"{type(error).__name__}: {error}"
                print(json.dumps({**asked, "error": why, "unusable": unusable}), flush=True)
                continue
            if found is not None:
                print(json.dumps(asdict(found)), flush=True)


if __name__ == "__main__":
    main()
