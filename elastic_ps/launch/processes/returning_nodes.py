"""A restore ends all processes of a job. Each launcher starts its own again, and not those of the others besides."""

import math
from collections import Counter
from collections.abc import Mapping

from elastic_ps.core.configuration import Role
from elastic_ps.launch.decide import WantedNodes

_MOST_SECONDS = 60.0


class ReturningNodes:
    """`ReturningNodes` counts processes of other launchers that a restore has ended and that have not come back.

    An `elasticrun --role` starts its node again. The coordinator wants one in its place at once, and would want one
    more for good where both came.

    Args:
        join_timeout: seconds that the coordinator waits for nodes to join, after which it wants no more than have come.

    Attributes:
        patience: seconds for which they are waited for after a restore; then others are started, in time to join.
        deadline: monotonic seconds after which nobody is waited for.
    """

    def __init__(self, join_timeout: float):
        self.patience = min(join_timeout / 2, _MOST_SECONDS)
        self._own: set[str] = set()
        self._met: set[str] = set()  # nonces of others' processes that have registered, of all times: a coordinator
        self._ended: dict[str, Role] = {}  # that has begun anew may tell of one again; and of those ended by restores,
        self._lost: set[str] = set()  # and of these, of those that were expelled
        self._away: Counter[Role] = Counter()
        self.deadline = math.inf

    def started(self, nonce: str) -> None:
        """Take note that a process is this launcher's own."""
        self._own.add(nonce)

    def others(self, wanted: WantedNodes) -> Mapping[str, str]:
        """Return the registered processes of other launchers: the node's name by nonce."""
        return {nonce: node for nonce, node in wanted.nodes.items() if nonce not in self._own}

    def observe(self, wanted: WantedNodes, now: float) -> list[str]:
        """Take the coordinator's latest word; return the names of those that are waited for since it.

        Args:
            wanted: by the coordinator.
            now: monotonic seconds.
        """
        others = self.others(wanted)
        ended = {nonce: _role(node) for nonce, node in others.items() if nonce in wanted.restarting}
        fresh = ended.keys() - self._ended.keys()
        self._away.update(ended[nonce] for nonce in fresh)
        self._ended |= ended
        here = {nonce for nonce, node in others.items() if nonce not in self._ended and node not in wanted.leaving}
        self._away -= Counter(_role(others[nonce]) for nonce in here - self._met)
        lost = self._ended.keys() & wanted.expelled  # frozen or cut off: they do not come back soon
        self._away -= Counter(self._ended[nonce] for nonce in lost - self._lost)
        self._met |= here
        self._lost |= lost
        if fresh or not self._away:
            self.deadline = now + self.patience if self._away else math.inf
        return sorted(others[nonce] for nonce in fresh)

    def away(self, now: float) -> Mapping[Role, int]:
        """Return how many are waited for, by role.

        Args:
            now: monotonic seconds.
        """
        if now >= self.deadline:
            self._away.clear()
            self.deadline = math.inf
        return self._away


def _role(node: str) -> Role:
    return Role.SERVER if node.startswith(Role.SERVER[0]) else Role.WORKER
