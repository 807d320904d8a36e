"""A `DataPosition` knows where a worker stands in the job's data, and which part of a step is its own.

Under `sync` the version says it: all workers share each step. Under `async` and `ssp` a step is one worker's, who draws
it from the coordinator.
"""

from dataclasses import dataclass
from typing import Protocol

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.data_order import DataSpec, Place, Slice, place, share
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.script_hints import NAME_NO_CONSISTENCY
from elastic_ps.worker.wire.member_state import MemberState
from elastic_ps.worker.wire.push_exchange import roster


@dataclass(frozen=True)
class StepPart:
    """A `StepPart` is what one worker does of a step.

    Attributes:
        place: of the step; None where the script draws its own batches.
        positions: of the epoch's permutation that are its own; of a script's own batch nothing is known but that it is
            one.
        seed: for the script's random numbers.
        roster: the workers among whom the step is divided: other workers make it again. None: it is nobody else's.
        batch: (origin, number of its first exchange), by which every block knows the pushes; None: by their version.
    """

    place: Place | None = None
    positions: range = range(1)
    seed: int = 0
    roster: tuple[NodeId, ...] | None = None
    batch: tuple[NodeId, int] | None = None

    def slice(self, exchange: int) -> Slice | None:
        """Return a push's `slice`, see `PushMeta`."""
        if self.place is None:
            return None
        return Slice(self.place.epoch, self.place.step, exchange, self.positions.start, self.positions.stop)

    def number(self, exchange: int) -> tuple[NodeId, int] | None:
        """Return a push's `batch`, see `PushMeta`."""
        return (self.batch[0], self.batch[1] + exchange) if self.batch else None


class DataPosition(Protocol):
    """A `DataPosition` is a worker's way through the job's data; it is used by the script's thread.

    Attributes:
        spec: of the data; its `exchanges` are known after the rehearsal.
    """

    spec: DataSpec

    @property
    def epoch(self) -> int:
        """The epoch that the job is in, as far as this worker knows."""

    @property
    def done(self) -> int:
        """Exchanges of the step under way that have been made."""

    def begin(self, epoch: int) -> StepPart | None:
        """Return the next step, or the one under way where exchanges of it lack; None: `epoch` is over.

        Raises:
            JobEnded: see `MemberState.wait`.
        """

    def upcoming(self, after: Place, count: int) -> list[range]:
        """Return the positions of the epoch that will probably come next, of at most `count` steps."""


def position_of(node: MemberState, spec: DataSpec) -> DataPosition:
    """Return the data position of a worker of an elastic job."""
    return ClockedPosition(node, spec) if spec.is_sync else DrawnPosition(node, spec)


class ClockedPosition:
    """See `DataPosition`: by the version, which is the same for all workers.

    Args:
        node: this worker.
        spec: the job's data.
    """

    def __init__(self, node: MemberState, spec: DataSpec):
        self.spec = spec
        self._node = node

    @property
    def epoch(self) -> int:
        """See `DataPosition.epoch`."""
        return self._here.epoch

    @property
    def done(self) -> int:
        """See `DataPosition.done`."""
        return self._here.exchange

    @property
    def _here(self) -> Place:
        return place(self.spec, self._node.version)

    def begin(self, epoch: int) -> StepPart | None:
        """See `DataPosition.begin`."""
        node = self._node
        with node.changed:
            node.check()
            here, workers = self._here, roster(node.configuration)
            rank = node.configuration.ranks[node.session.node]
        if here.epoch != epoch:
            return None
        seed = _seed(node.seed, here.epoch, here.step, rank)
        return StepPart(here, share(self.spec, here.step, rank, len(workers)), seed, workers)

    def upcoming(self, after: Place, count: int) -> list[range]:
        """See `DataPosition.upcoming`: as if the roster stayed."""
        workers = self._node.configuration.workers
        rank = self._node.configuration.ranks.get(self._node.session.node)
        if rank is None:
            return []
        steps = range(after.step + 1, min(after.step + 1 + count, self.spec.steps_per_epoch))
        slices = [share(self.spec, step, rank, len(workers)) for step in steps]
        return [positions for positions in slices if len(positions)]


class DrawnPosition:
    """See `DataPosition`: each step is drawn from the coordinator, whole.

    Args:
        node: this worker.
        spec: the job's data.
    """

    def __init__(self, node: MemberState, spec: DataSpec):
        self.spec = spec
        self._node = node
        self._draws = 0
        self._epoch: int | None = None
        self._part: StepPart | None = None
        self._began = 0  # this worker's version when it drew the step

    @property
    def epoch(self) -> int:
        """See `DataPosition.epoch`; the first time the coordinator is asked."""
        if self._epoch is None:
            self._epoch = self._node.ask_coordinator(lambda: self._node.session.draw(0, 0, any_epoch=True)).epoch
        return self._epoch

    @property
    def done(self) -> int:
        """See `DataPosition.done`."""
        return self._node.version - self._began if self._part else 0

    def begin(self, epoch: int) -> StepPart | None:
        """See `DataPosition.begin`. To draw says that the step before is done; it may have to wait."""
        node = self._node
        with node.changed:
            node.check()
        if self._part is None or self.done >= self.spec.exchanges:
            self._draws += 1
            reply = node.ask_coordinator(lambda: node.session.draw(self._draws, epoch))
            self._epoch, self._began = reply.epoch, node.version
            self._part = None
            if not reply.over:
                here, positions = Place(reply.epoch, reply.step), share(self.spec, reply.step, 0, 1)
                batch = (reply.origin, reply.batch * self.spec.exchanges)
                self._part = StepPart(here, positions, _seed(node.seed, here.epoch, here.step), None, batch)
        return self._part

    def upcoming(self, after: Place, count: int) -> list[range]:
        """See `DataPosition.upcoming`: nobody knows."""
        return []


def agree(named: str, known: str, where: str) -> None:
    """Refuse a key store that names another consistency than the job has.

    Args:
        named: the consistency that the key store names.
        known: the consistency of the job.
        where: who says so.
    """
    if named != known:
        raise ConfigurationError(
            f'a key store names the consistency "{named}", but the job\'s is "{known}", as {where} says: name the '
            f"same in both, or open {NAME_NO_CONSISTENCY}, which takes the job's"
        )


def _seed(*numbers: int) -> int:
    return hash(numbers) % (1 << 31)
