"""When an exchange closes (data-plane.md, "When a step ends"). Pure: keys in, decisions out.

Gluon calls `pushpull` once per parameter and says nothing at the end. So pushes only stage; an exchange closes when all
keys of the learnt set are staged, or earlier when a pull or a second push needs it. Elastic jobs learn the sets of a
step in the rehearsal, one per exchange. A static script has none: there each pushpull closes at once until the first
key comes round again, and the keys until then are the set.
"""

from dataclasses import dataclass, field

Key = tuple[int, str]
"""(store, key)."""


@dataclass
class Staging:
    """The keys of the open exchange, and what was learnt.

    Attributes:
        rehearsing: exchanges are only counted and learnt.
        learnt: key sets of a step's exchanges, in order.
        position: number of the open exchange in its step.
    """

    rehearsing: bool = False
    learnt: list[frozenset[Key]] = field(default_factory=list)
    position: int = 0
    staged: set[Key] = field(default_factory=set)
    _cycle: set[Key] = field(default_factory=set)
    _static: bool = True

    def rehearse(self) -> None:
        """Begin to learn the exchanges of a step."""
        self.rehearsing, self._static = True, False
        self.learnt, self.position = [], 0

    def trained(self) -> int:
        """End the rehearsal; returns the number of exchanges of a step."""
        self.rehearsing = False
        self.position = 0
        return len(self.learnt)

    def must_close_before(self, key: Key) -> bool:
        """Whether staging `key` needs the open exchange closed first: pushed twice, or another store's turn."""
        return key in self.staged or any(store != key[0] for store, _ in self.staged)

    def stage(self, key: Key, wants_value: bool) -> bool:
        """Stage a key; True where the exchange closes now.

        Args:
            key: pushed.
            wants_value: a pushpull, whose output is read with no further call.
        """
        self.staged.add(key)
        if self.rehearsing:
            return False
        if self._static:
            return self._stage_static(key, wants_value)
        return self.position < len(self.learnt) and self.staged >= self.learnt[self.position]

    def _stage_static(self, key: Key, wants_value: bool) -> bool:
        if self.learnt and any(key in known for known in self.learnt):
            return any(self.staged >= known for known in self.learnt if key in known)
        if key in self._cycle:
            self.learnt.append(frozenset(self._cycle))
            self._cycle = set()
            return any(self.staged >= known for known in self.learnt if key in known)
        if wants_value:
            self._cycle.add(key)
        return wants_value

    def needs(self, key: Key) -> bool:
        """Whether reading `key` needs the open exchange closed."""
        return key in self.staged

    def closed(self) -> frozenset[Key]:
        """The open exchange is closed; returns its keys."""
        keys = frozenset(self.staged)
        self.staged.clear()
        if self.rehearsing:
            self.learnt.append(keys)
        self.position += 1
        return keys
