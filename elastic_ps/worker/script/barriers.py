"""`Barriers` tells where in the job a script's barrier is; by that the coordinator matches it among the workers."""

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.data_order import DataSpec, share
from elastic_ps.worker.script.data_position import StepPart
from elastic_ps.worker.wire.member_state import MemberState

_END = 1 << 62
"""The place behind all steps and epochs: the largest that the coordinator takes."""


class Barriers:
    """`Barriers` waits for those workers that share a barrier. Used by the script's thread.

    A barrier is known by the last step that was begun, or the epoch's end (under `async` and `ssp` by the epoch), and
    its number from there. So a worker that joins does not count those before it, and a step that is made again does
    not wait twice. Those share it who have samples in the step, because the others' scripts do not see it.

    Args:
        node: this worker.
    """

    def __init__(self, node: MemberState):
        self._node = node
        self._place = 0  # before the first step, and of a script that draws its own batches
        self._number = 0
        self._sharing: tuple[NodeId, ...] = ()  # (): all workers
        self._roster: tuple[NodeId, ...] = ()  # of the last step

    def began(self, part: StepPart | None, epoch: int, spec: DataSpec) -> None:
        """Take note that a step begins, or that the epoch is over.

        Args:
            part: of the step; None: the epoch is over.
            epoch: the epoch that the job is in.
            spec: the job's data.
        """
        if not spec.is_sync:
            self._enter(1 + epoch, ())
        elif part is None:
            self._enter(2 * (1 + epoch) * spec.steps_per_epoch, self._roster)
        else:
            assert part.place is not None
            self._roster = part.roster or ()
            step, workers = part.place.step, len(self._roster)
            at_work = [name for rank, name in enumerate(self._roster) if share(spec, step, rank, workers)]
            self._enter(2 * (epoch * spec.steps_per_epoch + step) + 1, tuple(at_work))

    def ended(self) -> None:
        """Take note that the script has come to its end: some leave their loop before the last epoch's end, as others
        do not.
        """
        self._enter(_END, self._roster)

    def _enter(self, place: int, sharing: tuple[NodeId, ...]) -> None:
        if place == self._place and not sharing:  # the next batch of an epoch
            return
        self._place, self._number, self._sharing = place, 0, sharing
        self._node.progress.place = place

    def wait(self) -> None:
        """Wait until every worker that shares the step, or else every one of the job, is here.

        Raises:
            JobEnded: see `MemberState.wait`.
            ConfigurationError: another worker waits for this one's push.
        """
        number, self._number = self._number, self._number + 1
        node = self._node
        node.ask_coordinator(lambda: node.session.barrier(self._place, number, self._sharing, node.version))
