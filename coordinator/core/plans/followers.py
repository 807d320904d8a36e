"""Placing decides which server follows which block: never its owner, and on another machine where there are two.

Loads are the bytes that a server owns and follows. Where a machine's servers are few, their load may be higher than
that of others: what they can lose with another machine counts more than balance.
"""

from collections.abc import Sequence

NOBODY = -1


def place(
    sizes: Sequence[int],
    owners: Sequence[int],
    machines: Sequence[str],
    before: Sequence[int | None],
    former: Sequence[int | None],
) -> tuple[int, ...]:
    """Return the follower of every block, balanced as far as machines allow, with few changes; (): nobody can follow.

    A block keeps its follower; where that cannot be, its former owner follows it, which has its bytes. Then blocks move
    from one follower to another only while these differ by more than the largest block.

    Args:
        sizes: bytes by block id.
        owners: by block id, as index into the new server list.
        machines: of the servers, by index.
        before: present follower by block id, as index into the new list; None: it has none, or that leaves.
        former: present owner by block id, likewise; None: the block is new, or its owner leaves.
    """
    placing = _Placing(sizes, owners, machines)
    if len(machines) < 2:
        return ()
    for block in range(len(sizes)):
        placing.keep(block, (before[block], former[block]))
    kept = frozenset(block for block, server in enumerate(placing.follower) if server != NOBODY)
    placing.pour()
    placing.even_out(kept)
    return tuple(placing.follower)


def fill(
    sizes: Sequence[int], owners: Sequence[int], machines: Sequence[str], before: Sequence[int | None]
) -> tuple[int, ...]:
    """Return the follower of every block, where those that have one keep it; () where nobody can follow.

    Args:
        sizes: bytes by block id.
        owners: by block id, as index into the server list.
        machines: of the servers, by index.
        before: present follower by block id, likewise; None: it has none.
    """
    placing = _Placing(sizes, owners, machines)
    if len(machines) < 2:
        return ()
    for block, server in enumerate(before):
        if server is not None:
            placing.give(block, server)
    placing.pour()
    return tuple(placing.follower)


class _Placing:
    """A placing is under way. `follower` is NOBODY where a block has none yet."""

    def __init__(self, sizes: Sequence[int], owners: Sequence[int], machines: Sequence[str]):
        self.sizes = sizes
        self.owners = owners
        self.follower = [NOBODY] * len(sizes)
        self.loads = [0] * len(machines)
        for size, owner in zip(sizes, owners, strict=True):
            self.loads[owner] += size
        self.eligible = [_eligible(owner, machines) for owner in range(len(machines))]

    def keep(self, block: int, preferred: Sequence[int | None]) -> None:
        """Give a block to the first of some servers that may follow it."""
        for server in preferred:
            if server in self.eligible[self.owners[block]]:
                self.give(block, server)
                return

    def give(self, block: int, server: int) -> None:
        """Make a server follow a block, and nobody else."""
        if (old := self.follower[block]) != NOBODY:
            self.loads[old] -= self.sizes[block]
        self.follower[block] = server
        self.loads[server] += self.sizes[block]

    def pour(self) -> None:
        """Give blocks that have no follower to that of the block before, up to the mean; else to the least loaded."""
        level = 2 * sum(self.sizes) // len(self.loads)
        for block, server in enumerate(self.follower):
            if server != NOBODY:
                continue
            may = self.eligible[self.owners[block]]
            beside = self.follower[block - 1] if block else NOBODY
            if beside in may and self.loads[beside] + self.sizes[block] <= level:
                self.give(block, beside)
            else:
                self.give(block, self.least_loaded(block))

    def least_loaded(self, block: int) -> int:
        """Return who may follow a block and has the fewest bytes; of equal ones the next behind its owner."""
        owner, count = self.owners[block], len(self.loads)
        return min(self.eligible[owner], key=lambda server: (self.loads[server], (server - owner) % count))

    def even_out(self, kept: frozenset[int]) -> None:
        """Move blocks to less loaded servers while they differ by more than the largest; first those that move anyway.

        It ends, for each move brings two loads closer.
        """
        largest = max(self.sizes, default=0)
        order = sorted(range(len(self.sizes)), key=lambda block: (block in kept, -self.sizes[block], block))
        moving = True
        while moving:
            moving = False
            for block in order:
                least = self.least_loaded(block)
                if self.sizes[block] and self.loads[self.follower[block]] - self.loads[least] > largest:
                    self.give(block, least)
                    moving = True


def _eligible(owner: int, machines: Sequence[str]) -> tuple[int, ...]:
    """Return who may follow an owner's blocks: servers on other machines, or where there are none all others."""
    elsewhere = tuple(server for server, machine in enumerate(machines) if machine != machines[owner])
    return elsewhere or tuple(server for server in range(len(machines)) if server != owner)
