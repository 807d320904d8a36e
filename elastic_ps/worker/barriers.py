"""Barriers of a script: where in the job one is, which the coordinator matches among the workers."""

from elastic_ps.core.configuration import NodeId
from elastic_ps.worker.course import Part
from elastic_ps.worker.node import WorkerNode


class Barriers:
    """See the module. Used by the script's thread.

    A barrier is known by the last step that was begun (under `async` and `ssp` by the epoch) and its number from there,
    so that a worker that joins does not count those before it, and a step that is made again does not wait twice.

    Args:
        node: this worker.
    """

    def __init__(self, node: WorkerNode):
        self._node = node
        self._place = 0  # before the first step, and of a script that draws its own batches
        self._number = 0
        self._roster: tuple[NodeId, ...] = ()

    def began(self, part: Part | None, epoch: int, steps_per_epoch: int) -> None:
        """A step begins; None: the epoch is over."""
        if part is not None and part.place is not None and part.roster is not None:
            place, self._roster = 1 + epoch * steps_per_epoch + part.place.step, part.roster
        elif self._node.is_sync:
            return
        else:
            place = 1 + epoch
            if place == self._place:
                return
        self._place, self._number = place, 0

    def wait(self) -> None:
        """Wait until every worker that shares the step, or else every one of the job, is here.

        Raises:
            JobEnded: see `Room.wait`.
        """
        number, self._number = self._number, self._number + 1
        self._node.ask(lambda: self._node.session.barrier(self._place, number, self._roster))
