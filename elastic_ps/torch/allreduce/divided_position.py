"""A `DividedPosition` knows that who joins has no samples of its first step: its batch was loaded ahead rightly."""

from collections.abc import Callable

from elastic_ps.core.data_order import DataSpec, Place, share
from elastic_ps.worker.script.data_position import ClockedPosition, StepPart
from elastic_ps.worker.wire.member_state import MemberState
from elastic_ps.worker.wire.push_exchange import roster


class DividedPosition(ClockedPosition):
    """See `DataPosition`; of a job without servers.

    Args:
        node: this worker.
        spec: the job's data.
        part_of: returns what this worker does of a step, of what it would do were that divided among all.
    """

    def __init__(self, node: MemberState, spec: DataSpec, part_of: Callable[[StepPart], StepPart]):
        super().__init__(node, spec)
        self._part_of = part_of

    def upcoming(self, after: Place, count: int) -> list[range]:
        """See `DataPosition.upcoming`: only the first step behind a switch is divided otherwise."""
        coming, node = Place(after.epoch, after.step + 1), self._node
        with node.changed:
            workers, rank = roster(node.configuration), node.configuration.ranks.get(node.session.node)
        if rank is None or coming.step >= self.spec.steps_per_epoch:
            return []
        positions = share(self.spec, coming.step, rank, len(workers))
        first = self._part_of(StepPart(coming, positions, roster=workers)).positions
        return [*([first] if len(first) else []), *super().upcoming(coming, count - 1)]
