"""A follow stream takes a shadow, a worker that joins, to the version that the members hold, while they train.

Whom it follows, a member that stays, sends on a connection of the two:

    snapshot  a portion of the replica, at the version that the giver held then
    record    a step's summed gradient, of the portions that were sent before, each by itself; then its statistics
    end       nothing comes any more: the giver has switched
    pause     likewise: the shadow could not keep up, or the optimizer does not allow it

So the shadow's optimizer takes each portion from its own version on, and once all are there, it holds one version. The
words are those of servers' follow streams (`elastic_ps.server.copying`).
"""

from collections.abc import Iterator
from typing import Any

import torch

from elastic_ps.torch.allreduce.group import WorkerGroup
from elastic_ps.torch.allreduce.summing.layout import Layout, Sums

SNAPSHOT, RECORD, END, PAUSE = "snapshot", "record", "end", "pause"
"""Kinds of messages."""

GIVER, SHADOW = 0, 1
"""Ranks on the connection of the two."""


def record_parts(layout: Layout, ranges: list[range], sums: Sums) -> Iterator[Sums]:
    """Yield what a record has of some parameters, portion by portion, and then of the statistics.

    Args:
        layout: of the sums.
        ranges: of the portions' parameters.
        sums: of the record.
    """
    for spans in [*map(layout.spans, ranges), layout.spans_of_statistics()]:
        yield {dtype: sums[dtype][span] for dtype, span in spans.items()}


def part_sizes(layout: Layout, ranges: list[range]) -> Iterator[dict[torch.dtype, int]]:
    """Yield how many elements of each type the parts of a record have, which `record_parts` yields."""
    for spans in [*map(layout.spans, ranges), layout.spans_of_statistics()]:
        yield {dtype: span.stop - span.start for dtype, span in spans.items()}


def give_part(group: WorkerGroup, part: Sums) -> None:
    """Send a part of a record."""
    for flat in part.values():
        group.broadcast(flat, GIVER)


def take_part(group: WorkerGroup, sizes: dict[torch.dtype, int], memory: dict[torch.dtype, torch.Tensor]) -> Sums:
    """Receive a part of a record.

    Args:
        group: of the two.
        sizes: by type of elements.
        memory: to use, and to keep for later; it grows as needed.
    """
    found: Sums = {}
    for dtype, size in sizes.items():
        if dtype not in memory or len(memory[dtype]) < size:
            memory[dtype] = torch.empty(size, dtype=dtype, device="cpu")
        found[dtype] = memory[dtype][:size]
        group.broadcast(found[dtype], GIVER)
    return found


def ranges_told(ranges: list[range]) -> list[tuple[int, int]]:
    """Return what a record's message tells of its portions."""
    return [(each.start, each.stop) for each in ranges]


def ranges_of(told: dict[str, Any]) -> list[range]:
    """Return the portions of which a record's message tells."""
    return [range(first, stop) for first, stop in told["ranges"]]
