"""What the servers of a played job without a clock have updated with."""

from collections import Counter

from coordinator.core import replies
from elastic_ps.core.configuration import NodeId


class TakenBatches:
    """The servers of a job without a clock, played as one: what they have updated with."""

    def __init__(self) -> None:
        self.times: Counter[tuple[int, int]] = Counter()  # by (epoch, step)
        self.applied: dict[NodeId, int] = {}  # last batch by origin

    def take(self, batch: replies.DrawReply) -> None:
        """As `Store.applied`: only later batches of an origin."""
        if batch.batch > self.applied.get(batch.origin, -1):
            self.applied[batch.origin] = batch.batch
            self.times[batch.epoch, batch.step] += 1
