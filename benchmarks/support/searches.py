"""The search for configurations worth trying, without the program that it has in `dl2 serve`."""

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.learning.live.exploring_program import ExplorationSearch
from dl2_scheduler.live.exploration.telling import Telling
from dl2_scheduler.live.history import History


class Searches:
    """`Searches` look for configurations worth trying in this process, so that no slot has to pass. See `SlotObserver`.

    Args:
        history: of the cluster.

    Attributes:
        telling: what was found after the last slot.
    """

    def __init__(self, history: History):
        self._search, self.telling = ExplorationSearch(history, NodeRule.SPREAD), Telling()

    def before(self, slot: int) -> None:
        """See `SlotObserver.before`."""

    def after(self, slot: int) -> None:
        """See `SlotObserver.after`."""
        self.telling = self._search.found() or self.telling
