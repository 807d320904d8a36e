"""A `StoreOptimizer` gives the optimizer of one key store, which runs on the servers, its values for each update."""

import logging
from collections.abc import Callable, Iterable

from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.worker.script.optimizer_states import State, States
from elastic_ps.worker.script.process_ending import exits
from elastic_ps.worker.script.staging import Key
from elastic_ps.worker.wire.worker_node import WorkerNode

log = logging.getLogger(__name__)

UNDIVIDED = ("lamb", "lars")
"""Rules that need the norm of whole tensors."""


class StoreOptimizer:
    """A `StoreOptimizer` knows the optimizer of one kvstore and its schedule.

    Args:
        node: this worker.
        number: number of the key store.

    Attributes:
        spec: which one; None: there is none (yet).
    """

    def __init__(self, node: WorkerNode, number: int):
        self.spec: OptimizerSpec | None = None
        self._node = node
        self._number = number
        self._hyper: Callable[[int], Hyper] | None = None
        self._states = States(node, number)
        self._later: dict[str, State] = {}  # to be loaded when the rehearsal is over
        self._loaded: tuple[int, dict[str, State]] | None = None  # version, states that the chief has loaded
        self._counts: dict[str, int] | None = None  # updates of each key, known to the chief only

    def set(self, spec: OptimizerSpec, hyper: Callable[[int], Hyper]) -> None:
        """Take this one; `hyper` gives the values of an update by its number."""
        self.spec, self._hyper = spec, hyper

    def hyper(self, keys: Iterable[Key]) -> Hyper | None:
        """Return the values of the coming update of `keys`; None without an optimizer.

        The number of the update is the largest of any key. Under "sync" only the chief gives values: a
        worker that becomes it asks the servers for their counts once, so that schedules go on after joins, restores
        and loaded states. Else the servers tell their counts with each value.
        """
        node = self._node
        if self._hyper is None:
            return None
        if not node.is_sync:
            return self._hyper(node.inbox.updates(self._number) + 1)
        if not node.is_chief:
            self._counts = None
            return None
        self._finish_load()
        pushing = [key for _, key in keys]
        if self._counts is None:
            with exits():
                self._counts = self._states.counts(pushing)
        coming = [self._counts.get(key, 0) + 1 for key in pushing]
        return self._hyper(max([*coming, *self._counts.values()]))

    def updated(self, keys: Iterable[Key]) -> None:
        """Count an update of `keys`: an exchange over them is complete."""
        if self._counts is not None:
            self._counts.update({key: self._counts.get(key, 0) + 1 for _, key in keys})

    def skipped(self) -> None:
        """Take note that an exchange is complete, and no update: servers are asked for their counts again.

        Where they had skipped it before this worker became the chief, one that it took for made was never counted.
        """
        self._counts = None

    def states(self) -> dict[str, State]:
        """Return the servers' states; in the rehearsal of a new job, which has none, what it was given to load."""
        with exits():
            return self._states.collect() or dict(self._later)

    def load(self, states: dict[str, State], begins: bool) -> None:
        """Load states, unless the script starts in a job that has gone on: its servers hold the later ones.

        Args:
            states: the states to load, by key.
            begins: this process has made no exchange yet.
        """
        node = self._node
        if begins and (node.version or node.inherited):
            log.warning("optimizer states are not loaded: the job has gone on, and its servers hold later ones")
            return
        self._counts = None
        with exits():
            self._states.load(states)
        self._loaded = (node.version, states) if node.is_sync and not node.is_chief else None

    def load_later(self, states: dict[str, State]) -> None:
        """Load states when the rehearsal is over."""
        self._later = dict(states)

    def load_now(self, begins: bool) -> None:
        """Load what `load_later` was given: the rehearsal is over."""
        if self._later:
            self.load(self._later, begins)
        self._later = {}

    def _finish_load(self) -> None:
        """Load again what a chief has perhaps died over before its push: nothing can have been updated since."""
        if self._loaded is not None and self._loaded[0] == self._node.version:
            with exits():
                self._states.load(self._loaded[1])
        self._loaded = None
