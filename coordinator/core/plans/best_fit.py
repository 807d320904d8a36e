"""Best fit decides which server holds which block (DL2 section 5, step 2: parameter assignment), in integers only.

Loads are bytes. A plan may leave every server anywhere in a window [level, level + largest block]; the level is the one
that needs the fewest bytes to move. Five passes reach it:

1. shed: a server above the window gives blocks off the end of what it holds, never more than it has to;
2. pour: these blocks and those without an owner fill servers up to the level, runs of consecutive blocks kept together;
3. rest: what fits nowhere below the level goes, largest first, to the least loaded server;
4. even out: while two servers are more than a largest block apart, one best-fitting block moves between them;
5. populate: a server without any block takes the cheapest one of a server with several.

Why it ends within one largest block L: a block goes to the least loaded server only, so a receiver ends at most L above
the minimum, and the minimum never sinks; pass 4 mends the rest, each of its moves narrowing the widest gap. A receiver
therefore never becomes a giver, a block moves at most once, and a giver holds the mean or more before its last gift:
moved <= bytes above the mean on those who stay + bytes without an owner + L per server.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from operator import itemgetter

from elastic_ps.core.configuration import NodeId


@dataclass(frozen=True, slots=True)
class Move:
    """A move says what one server hands to another.

    Attributes:
        source: the owner now.
        target: the owner to be.
        blocks: how many.
        bytes: their values; optimizer state comes on top.
    """

    source: NodeId
    target: NodeId
    blocks: int
    bytes: int


def best_fit(sizes: Sequence[int], assignment: Sequence[int | None], servers: int) -> tuple[int, ...]:
    """Return the owner of every block, near the present ones and balanced within one largest block.

    Every server gets a block where there are as many blocks as servers.

    Args:
        sizes: bytes by block id.
        assignment: present owner by block id, as index into the new server list; None where the block is new or its
            owner leaves.
        servers: length of the new server list.

    Raises:
        ValueError: no server, a negative size, lengths that differ, or an owner outside the list.
    """
    fit = _Fit(sizes, assignment, servers)
    largest = max(sizes, default=0)
    level = _level(fit.loads, fit.homeless, slack=largest)
    fit.shed(level + largest)
    fit.pour(level)
    fit.place_rest()
    fit.even_out(level, largest)
    fit.populate(movable=range(len(sizes)))
    return tuple(fit.owner)


def extend(sizes: Sequence[int], assignment: Sequence[int], servers: int) -> tuple[int, ...]:
    """Return the owner of every block of a model that has grown, without moving the known ones.

    Args:
        sizes: bytes by block id, of all blocks.
        assignment: owner of the first `len(assignment)` blocks.
        servers: how many there are.

    Raises:
        ValueError: as `best_fit`, or a model that has shrunk.
    """
    new = range(len(assignment), len(sizes))
    fit = _Fit(sizes, [*assignment, *([None] * len(new))], servers)
    fit.pour(_level(fit.loads, fit.homeless, slack=max(fit.loads)))  # nobody sheds
    fit.place_rest()
    fit.populate(movable=new)
    return tuple(fit.owner)


def moves(sizes: Sequence[int], old: Sequence[NodeId], new: Sequence[NodeId]) -> list[Move]:
    """Return what goes from where to where, in order of source and target.

    Args:
        sizes: bytes by block id.
        old: owner by block id now.
        new: owner by block id in the new configuration.

    Raises:
        ValueError: lengths that differ.
    """
    totals: dict[tuple[NodeId, NodeId], tuple[int, int]] = {}
    for size, source, target in zip(sizes, old, new, strict=True):
        if source != target:
            blocks, total = totals.get((source, target), (0, 0))
            totals[source, target] = (blocks + 1, total + size)
    return [Move(*ends, *totals[ends]) for ends in sorted(totals)]


def leaving_server_order(sizes: Sequence[int], assignment: Sequence[int], servers: int) -> tuple[int, ...]:
    """Return all servers, the first to leave first: fewest bytes to move, then highest rank.

    Args:
        sizes: bytes by block id.
        assignment: owner by block id.
        servers: how many there are.

    Raises:
        ValueError: as `best_fit`.
    """
    loads = _Fit(sizes, assignment, servers).loads
    return tuple(sorted(range(servers), key=lambda server: (loads[server], -server)))


def _level(loads: Sequence[int], homeless: int, slack: int) -> int:
    """Find the highest level up to which what must move anyway fills all servers; beyond level + slack, bytes must
    move.
    """

    def fills(level: int) -> bool:
        free = sum(level - load for load in loads if load < level)
        return free <= homeless + sum(load - level - slack for load in loads if load > level + slack)

    low, high = 0, (sum(loads) + homeless) // len(loads)  # never above the mean
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fills(middle) else (low, middle - 1)
    return low


class _Fit:
    """A fit is an assignment being made. `owner` is -1 where a block has none yet."""

    def __init__(self, sizes: Sequence[int], assignment: Sequence[int | None], servers: int):
        if servers < 1:
            raise ValueError(f"an assignment needs at least one server, not {servers}")
        if len(sizes) != len(assignment):
            raise ValueError(f"{len(sizes)} blocks, but an assignment of {len(assignment)}")
        self.sizes = sizes
        self.owner = [-1 if server is None else server for server in assignment]
        self.before = tuple(self.owner)
        self.loads = [0] * servers
        self.counts = [0] * servers
        for block, server in enumerate(assignment):
            if sizes[block] < 0:
                raise ValueError(f"block {block} has a size of {sizes[block]} bytes")
            if server is None:
                continue
            if not 0 <= server < servers:
                raise ValueError(f"block {block} belongs to server {server}, but there are {servers}")
            self.loads[server] += sizes[block]
            self.counts[server] += 1

    @property
    def homeless(self) -> int:
        """The bytes without an owner."""
        return sum(size for size, server in zip(self.sizes, self.owner, strict=True) if server < 0)

    def take(self, block: int) -> None:
        """Take a block off its server."""
        server, self.owner[block] = self.owner[block], -1
        self.loads[server] -= self.sizes[block]
        self.counts[server] -= 1

    def give(self, block: int, server: int) -> None:
        """Give a block to a server."""
        self.owner[block] = server
        self.loads[server] += self.sizes[block]
        self.counts[server] += 1

    def shed(self, top: int) -> None:
        """Take blocks from the end of servers above `top`, until the next one would take them below it."""
        giving = {server for server, load in enumerate(self.loads) if load > top}
        for block in range(len(self.sizes) - 1, -1, -1):
            server = self.owner[block]
            if server not in giving:
                continue
            if self.loads[server] - self.sizes[block] < top:
                giving.discard(server)
            else:
                self.take(block)

    def pour(self, level: int) -> None:
        """Fill servers up to `level`: a block joins the neighbour on its right, else on its left, else the emptiest."""
        pool = [block for block, server in enumerate(self.owner) if server < 0]
        for block in reversed(pool):
            if block + 1 < len(self.owner):
                self._join(block, self.owner[block + 1], level)
        heap = self._by_load()
        for block in pool:
            if self.owner[block] >= 0 or (block > 0 and self._join(block, self.owner[block - 1], level)):
                continue
            self._join(block, self._least_loaded(heap), level)

    def _join(self, block: int, server: int, level: int) -> bool:
        if server < 0 or self.loads[server] + self.sizes[block] > level:
            return False
        self.give(block, server)
        return True

    def place_rest(self) -> None:
        """Give each block without an owner to the least loaded server, largest first."""
        rest = [block for block, server in enumerate(self.owner) if server < 0]
        heap = self._by_load()
        for block in sorted(rest, key=lambda block: (-self.sizes[block], block)):
            self.give(block, self._least_loaded(heap))

    def even_out(self, level: int, largest: int) -> None:
        """Move blocks from the most to the least loaded server, until they are within one largest block."""
        held: dict[int, list[tuple[int, int]]] = {}
        low = self._by_load()
        high = [(-load, server) for server, load in enumerate(self.loads)]
        heapify(high)
        while True:
            while -high[0][0] != self.loads[high[0][1]]:
                heapreplace(high, (-self.loads[high[0][1]], high[0][1]))
            giver, taker = high[0][1], self._least_loaded(low)
            if self.loads[giver] - self.loads[taker] <= largest:
                return
            if giver not in held:
                held[giver] = sorted((self.sizes[block], -block) for block in self._blocks_of(giver))
            # The smallest block that brings both ends into the window, else the largest; the last of equal ones.
            need = max(self.loads[giver] - level - largest, level - self.loads[taker])
            size = min(need, held[giver][-1][0])
            block = -held[giver].pop(bisect_left(held[giver], size, key=itemgetter(0)))[1]
            self.take(block)
            self.give(block, taker)

    def populate(self, movable: range) -> None:
        """Give a block to every server that has none, as long as another has several."""
        empty = [server for server, count in enumerate(self.counts) if not count]
        if not empty:
            return
        for block in sorted(movable, key=self._price):
            if self.counts[self.owner[block]] > 1:
                self.take(block)
                self.give(block, empty.pop(0))
                if not empty:
                    return

    def _price(self, block: int) -> tuple[int, int, int]:
        """Return what moving a block costs: nothing if it moves anyway."""
        stays = self.owner[block] == self.before[block]
        return (self.sizes[block] if stays else 0, self.sizes[block], -block)

    def _blocks_of(self, server: int) -> list[int]:
        return [block for block, owner in enumerate(self.owner) if owner == server]

    def _by_load(self) -> list[tuple[int, int, int]]:
        heap = [(load, self.counts[server], server) for server, load in enumerate(self.loads)]
        heapify(heap)
        return heap

    def _least_loaded(self, heap: list[tuple[int, int, int]]) -> int:
        """Return the server with the fewest bytes, then blocks, then rank; put entries back that have grown since."""
        while True:
            load, count, server = heap[0]
            if (load, count) == (self.loads[server], self.counts[server]):
                return server
            heapreplace(heap, (self.loads[server], self.counts[server], server))
