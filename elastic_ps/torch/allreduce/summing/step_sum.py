"""A `StepSum` is the sum of a step under way: each bucket is summed as soon as this worker's part of it is there.

Each member adds up a share of a bucket, in the order of ranks, and gives it to all: it sends and receives 2 (W - 1) / W
of the bytes, as a ring does. Unlike a ring's, the order of the additions is the same for all elements, and for all
sizes of buckets. All is sent from, and received into, the memory where the sum lies in the end.

Where gradients travel in a shorter type, each member's part is rounded to it, the sum is made of these in the longer
type, and is rounded once more; so all have the same sum, to the bit, whoever has added it up.
"""

from collections.abc import Callable, Sequence

import torch

from elastic_ps.core.gradient_norm import SKIPPED, factor_of, told_squares
from elastic_ps.core.optimizer import Hyper
from elastic_ps.torch.allreduce.group import Collective, Transfer, WorkerGroup, without_frames
from elastic_ps.torch.allreduce.summing.layout import Bucket, Sums
from elastic_ps.torch.allreduce.summing.step_buffers import StepBuffers

BUCKET_BYTES = 4 << 20
"""What a bucket has at most: little enough to be in a core's cache between its copy, its sum and the wire."""


_ROUNDED, _BEFORE = -1, -2
"""Numbers of memory: for what travels of a whole step, and for the sum of what lower ranks have."""


class StepSum:
    """A `StepSum` sums buckets in their order, on the group's thread, while the script's thread fills later ones.

    Args:
        group: of the members.
        generation: in which it is in force.
        buckets: of the layout.
        buffers: gives memory.
        fill: writes this worker's part of a bucket into the sums; returns what waits until it is there.

    Attributes:
        generation: see Args.
        sums: where this worker's part lies, and in the end the sum.
    """

    def __init__(
        self,
        group: WorkerGroup,
        generation: int,
        buckets: Sequence[Bucket],
        buffers: StepBuffers,
        fill: Callable[[Bucket, Sums], Callable[[], None]],
    ):
        self.generation = generation
        self.sums = buffers.of_step()
        self._group = group
        self._buckets = buckets
        self._received = buffers.received
        self._rounded: Sums = {}  # by the type that is rounded: what travels instead
        for bucket in buckets:
            if bucket.wire is not None and bucket.dtype not in self._rounded and group.size > 1:
                length = len(self.sums[bucket.dtype])
                self._rounded[bucket.dtype] = self._received.of(bucket.wire, _ROUNDED, length)
        self._fill = fill
        self._others = [rank for rank in range(group.size) if rank != group.rank]
        self._filled: list[Callable[[], None]] = []  # by bucket: waits until this worker's part is there
        self._ready: set[int] = set()  # parameters whose gradients are there, while others are not
        self._error: Exception | None = None
        self._parts: list[list[tuple[torch.Tensor, Transfer]]] = []  # by bucket: what others send, by rank, to be added
        self._works: list[Transfer] = []  # what is under way besides

    # ---- on the script's thread --------------------------------------------------------------------------------------

    def ready(self, parameters: Sequence[int]) -> None:
        """Take note that gradients are there, and begin to sum the next buckets that have all of theirs."""
        self._ready.update(parameters)
        while len(self._filled) < len(self._buckets) and self._is_ready(self._buckets[len(self._filled)]):
            self._begin()

    def finish(self, told: Sequence[float]) -> Collective:
        """Begin to sum all buckets that lack; return the collective that ends with what each member has told."""
        while len(self._filled) < len(self._buckets):
            self._begin()
        return self._group.submit(lambda: self._end(told))

    def _is_ready(self, bucket: Bucket) -> bool:
        return bool(bucket.gradients) and all(piece.number in self._ready for piece in bucket.gradients)

    def _begin(self) -> None:
        number = len(self._filled)
        self._filled.append(self._fill(self._buckets[number], self.sums))
        if self._group.size > 1:
            self._group.submit(lambda: self._pass(number))

    # ---- on the group's thread ---------------------------------------------------------------------------------------

    def _pass(self, number: int) -> None:
        """Give others this worker's part of a bucket; meanwhile the bucket before is summed."""
        if self._error is not None:
            return
        try:
            self._filled[number]()
            self._give(number)
            if number:
                self._add(number - 1)
        except Exception as error:  # noqa: BLE001  # gloo's errors are of no one kind; `finish` is told
            self._error = without_frames(error)

    def _end(self, told: Sequence[float]) -> list[list[float]]:
        if self._error is not None:
            raise self._error
        for wait in self._filled:
            wait()
        if self._parts:
            self._add(len(self._parts) - 1)
        for work in self._works:
            work.wait()
        for bucket in self._buckets:
            if self._is_rounded(bucket):
                self.sums[bucket.dtype][bucket.span].copy_(self._rounded[bucket.dtype][bucket.span])
        return self._group.gather(told)

    def clip(self, hyper: Hyper) -> float:
        """Make all gradients smaller by the factor that their norm decides, and return that; each member calls it.

        Each measures what it has added up itself, so that the factor is the same at all to the bit.

        Args:
            hyper: what the norm is for, of the chief.
        """
        gradients = [bucket for bucket in self._buckets if bucket.gradients]
        own = [self.sums[each.dtype][each.share(self._group.rank, self._group.size)] for each in gradients]
        squares = told_squares(torch.linalg.vector_norm(part, dtype=torch.float64).item() for part in own)
        told = self._group.gather([squares])
        factor = factor_of([found for (found,) in told], hyper)
        if factor not in (1.0, SKIPPED):
            for each in gradients:
                self.sums[each.dtype][each.start : each.stop].mul_(factor)
        return factor

    def _is_rounded(self, bucket: Bucket) -> bool:
        return bucket.wire is not None and bucket.dtype in self._rounded

    def _travelling(self, bucket: Bucket) -> torch.Tensor:
        """Return the buffer from which a bucket is sent, and into which it is received."""
        return (self._rounded if self._is_rounded(bucket) else self.sums)[bucket.dtype]

    def _give(self, number: int) -> None:
        group, bucket = self._group, self._buckets[number]
        flat, own = self._travelling(bucket), bucket.share(group.rank, group.size)
        if self._is_rounded(bucket):
            flat[bucket.span].copy_(self.sums[bucket.dtype][bucket.span])
        parts: list[tuple[torch.Tensor, Transfer]] = []
        for other in self._others:
            place = 2 * other + number % 2  # two buckets are under way at once
            part = self._received.of(flat.dtype, place, own.stop - own.start)
            parts.append((part, group.receive(part, other, 2 * number)))
            self._works.append(group.send(flat[bucket.share(other, group.size)], other, 2 * number))
        self._parts.append(parts)

    def _add(self, number: int) -> None:
        """Add up this worker's share of a bucket, give it to all, and begin to receive the others' shares."""
        group, bucket = self._group, self._buckets[number]
        flat, share = self._travelling(bucket), bucket.share(group.rank, group.size)
        own = self.sums[bucket.dtype][share]
        for _, work in self._parts[number]:
            work.wait()
        parts = [part for part, _ in self._parts[number]]
        if self._is_rounded(bucket):
            own.copy_(flat[share])
        if group.rank:
            before = parts[0]  # and what other ranks before this one have
            if self._is_rounded(bucket):
                before = self._received.of(own.dtype, _BEFORE, len(own)).copy_(before)
            for part in parts[1 : group.rank]:
                before.add_(part)
            own.add_(before)
        for part in parts[group.rank :]:
            own.add_(part)
        if self._is_rounded(bucket):
            flat[share].copy_(own)
        for other in self._others:
            self._works.append(group.receive(flat[bucket.share(other, group.size)], other, 2 * number + 1))
            self._works.append(group.send(flat[share], other, 2 * number + 1))
