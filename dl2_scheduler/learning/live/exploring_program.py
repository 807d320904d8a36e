"""This module is exploration's program: told of slots, it says in which configurations a speed would be worth knowing.

    python -m dl2_scheduler.learning.live.exploring_program FOLDER RULE

FOLDER is the cluster's, RULE a `NodeRule`. It is told the numbers of slots, and says lines that are `Telling`s, or
{"slot": 3, "error": why it could not}.
"""

import math
import sys
from contextlib import closing
from pathlib import Path

import numpy as np

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.learning.live.exploring import as_line
from dl2_scheduler.live.exploration.telling import Telling
from dl2_scheduler.live.history import History
from dl2_scheduler.live.side_program import answer_slots, be_nice
from dl2_scheduler.world_model.future import only_fitting
from dl2_scheduler.world_model.observation_value import telling_configurations
from dl2_scheduler.world_model.observed import ObservedCluster
from elastic_ps.system.printable import LogLines, log_to_stderr

_SECONDS, _PART = 5.0, 0.1  # of computing after a slot, at most: in seconds, and of the slot


class ExplorationSearch:
    """An `ExplorationSearch` follows the history of a cluster, and finds what is worth trying in its present.

    Args:
        history: the history of the cluster.
        rule: the rule by which tasks find their node.
    """

    def __init__(self, history: History, rule: NodeRule):
        self._observed, self._rule = ObservedCluster.recent(history), rule
        self._slot = -1  # the last one after which was searched

    def found(self, seconds: float = math.inf) -> Telling | None:
        """Return what is worth trying after the last slot; None: there is none yet, or it was searched after before.

        Args:
            seconds: how long to compute, at most; part of a slot suffices, if that is less.
        """
        observed = self._observed
        observed.catch_up()
        last, present = observed.last, observed.present
        if last is None or present is None or present.slot == self._slot:  # slots without jobs are in no history
            return None
        fitting, slot, cost = only_fitting(present), present.slot, observed.cost
        self._slot = slot
        configurations = telling_configurations(
            fitting, last.allocation, observed.fitted, self._rule, np.random.default_rng(slot), seconds
        )
        return Telling(slot, tuple(configurations), cost.change + cost.join)

    @property
    def slot_seconds(self) -> float:
        """The length of a slot, of late; NaN: there is none yet."""
        return self._observed.slot_seconds


def main() -> None:
    """Run the program; see the module."""
    be_nice()
    log_to_stderr(LogLines())
    folder, rule = sys.argv[1:]
    with closing(History.of_folder(Path(folder))) as history:
        search = ExplorationSearch(history, NodeRule(int(rule)))

        def answer(seconds: float) -> str | None:
            found = search.found(seconds)
            return None if found is None else as_line(found)

        answer_slots(answer, lambda: search.slot_seconds, _SECONDS, _PART)


if __name__ == "__main__":
    main()
