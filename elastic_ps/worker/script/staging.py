"""`Staging` knows the keys of the open exchange, and the exchanges of a step. It is pure: keys in, decisions out.

Pushes only stage. An exchange closes when something needs its result or its place: a pull or a second push of a staged
key, a pushpull (at the end of `KeyStore.combined` where it is within one), another store's turn, a barrier, the step's
end. That is decided by the script's calls alone, and so alike in every worker. Elastic jobs learn in the rehearsal how
many exchanges a step makes, and which keys are never pushed.
"""

from dataclasses import dataclass, field

Key = tuple[int, str]
"""(store, key)."""


@dataclass
class Staging:
    """`Staging` has the keys of the open exchange, and what was learnt.

    Attributes:
        rehearsing: exchanges are only counted and learnt.
        learnt: key sets of a step's exchanges, in order.
        staged: keys of the open exchange.
    """

    rehearsing: bool = False
    learnt: list[frozenset[Key]] = field(default_factory=list)
    staged: set[Key] = field(default_factory=set)

    def rehearse(self) -> None:
        """Begin to learn the exchanges of a step."""
        self.rehearsing, self.learnt = True, []

    def trained(self) -> int:
        """End the rehearsal; returns the number of exchanges of a step."""
        self.rehearsing = False
        return len(self.learnt)

    def must_close_before(self, key: Key) -> bool:
        """Return whether `key` needs the open exchange closed first: it is pushed twice, or of another store."""
        return key in self.staged or (bool(self.staged) and next(iter(self.staged))[0] != key[0])

    def stage(self, key: Key) -> None:
        """Add a key to the open exchange."""
        self.staged.add(key)

    def needs(self, key: Key) -> bool:
        """Return whether reading `key` needs the open exchange closed."""
        return key in self.staged

    def closed(self) -> frozenset[Key]:
        """Close the open exchange; return its keys."""
        keys = frozenset(self.staged)
        self.staged.clear()
        if self.rehearsing:
            self.learnt.append(keys)
        return keys
