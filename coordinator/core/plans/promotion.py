"""Promotion decides who owns each block when a server has died: the survivors' answers say what they have.

The rules are those of tests/protocol_model/README.md ("Deaths"), where every order of messages was tried. A death
builds on a chain of configurations: the one in force, then those that were armed or decided since, the last one being
what the job would have come to without the death.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import repeat, zip_longest

from coordinator.core.plans.followers import NOBODY
from elastic_ps.core.configuration import Configuration, Member, NodeId
from elastic_ps.core.model import Run
from elastic_ps.core.segments import joined

_UNSEEN = -1


class HoldingKind(StrEnum):
    """A kind says what a node has of some blocks: see `Holding` in protos/elastic.proto."""

    SEEN = "seen"
    OWNED = "owned"
    LEAVING = "leaving"
    COPY = "copy"
    FROZEN = "frozen"


@dataclass(frozen=True)
class Holding:
    """A node has these runs of blocks at a version."""

    kind: HoldingKind
    version: int
    runs: tuple[Run, ...]


Holdings = Mapping[NodeId, Sequence[Holding]]
"""What each survivor has answered."""


@dataclass(frozen=True)
class Decision:
    """A decision says who owns and follows what.

    Attributes:
        configuration: without the dead.
        lost: blocks that nobody has as a worker has seen them: only a checkpoint can mend that.
        promoted: runs of blocks that their owners have at once, without a hand-over.
    """

    configuration: Configuration
    lost: tuple[int, ...] = ()
    promoted: tuple[Run, ...] = ()


def survivable(chain: Sequence[Configuration], living: Iterable[NodeId]) -> bool:
    """Return whether some configuration of a chain names a living server for each block that one of them assigns.

    Args:
        chain: of configurations.
        living: nodes.
    """
    alive = frozenset(living)
    if not any(configuration.followers for configuration in chain):
        return False
    return all(any(named & alive for named in copies if named) for copies in set(zip_longest(*map(_named, chain))))


def _named(configuration: Configuration) -> Iterator[frozenset[NodeId]]:
    """Yield owner and follower of each block."""
    names = [server.id for server in configuration.servers]
    pairs = list(zip(configuration.assignment, configuration.followers or repeat(NOBODY), strict=False))
    known = {pair: frozenset(names[index] for index in pair if index != NOBODY) for pair in set(pairs)}
    return (known[pair] for pair in pairs)


def decide(
    chain: Sequence[Configuration],
    begun: Configuration,
    living: Iterable[NodeId],
    told: Holdings,
    *,
    promoted: Sequence[Run] | None = None,
    young: Collection[int] = (),
) -> Decision:
    """Return who owns each block from now on.

    Args:
        chain: what the death builds on, the configuration in force first.
        begun: the death's configuration as it was prepared: its number and its workers are right.
        living: nodes; every one of them has answered, but workers whose script has ended.
        told: their answers.
        promoted: what an earlier death has promoted that decided the last one of the chain, None: none did. Of equal
            copies, whom it has promoted owns the block, though that server may not have heard of it.
        young: blocks that were declared since the configuration in force took effect: see `_heir`.
    """
    survey = _Survey(frozenset(living), told, len(begun.assignment))
    pairs: list[tuple[NodeId, NodeId | None]] = []
    lost = []
    before = frozenset(_blocks_of(promoted or (), len(begun.assignment)))
    at_once = []
    for block in range(len(begun.assignment)):
        chosen = _standing(chain, block, survey)
        if chosen is None:
            successor = _successor(chain, block, survey, promoted is not None, block in young)
            if successor is None:
                lost.append(block)
            chosen = (successor or begun.primary(block), None)
            at_once.append(block)
        elif block in before and chosen[0] == chain[-1].primary(block):
            at_once.append(block)
        pairs.append(chosen)
    if lost:
        return Decision(begun, tuple(lost))
    settled = _settled(chain, begun, survey.living, pairs)
    return Decision(settled, promoted=tuple(joined((block, 1) for block in at_once)))


class _Survey:
    """A survey is what survivors have of each block."""

    def __init__(self, living: frozenset[NodeId], told: Holdings, blocks: int):
        self.living = living
        self.seen = [_UNSEEN] * blocks
        self.kinds: dict[tuple[NodeId, int], HoldingKind] = {}
        self.versions: dict[tuple[NodeId, int], int] = {}
        answers = [(name, holding) for name in living & told.keys() for holding in told[name]]
        for holding in {holding for _, holding in answers if holding.kind is HoldingKind.SEEN}:
            for block in _blocks_of(holding.runs, blocks):
                self.seen[block] = max(self.seen[block], holding.version)
        for name, holding in answers:
            if holding.kind is not HoldingKind.SEEN:
                for block in _blocks_of(holding.runs, blocks):
                    self.kinds[name, block] = holding.kind
                    self.versions[name, block] = holding.version


def _blocks_of(runs: Iterable[Run], blocks: int) -> Iterable[int]:
    """Yield the blocks of some runs; those beyond the configuration are not asked for."""
    for first, count in runs:
        yield from range(first, min(first + count, blocks))


def _ends(chain: Sequence[Configuration], block: int) -> tuple[Configuration, Configuration]:
    """Return the configuration in force, or the first that has the block, and the one that is built on."""
    return next(configuration for configuration in chain if block < len(configuration.assignment)), chain[-1]


def _standing(chain: Sequence[Configuration], block: int, survey: _Survey) -> tuple[NodeId, NodeId | None] | None:
    """Return a block's owner and follower where an owner has outlived it; None: no owner has (rules 15 a to c)."""
    force, floor = _ends(chain, block)
    old, new = force.primary(block), floor.primary(block)
    handed_over = survey.kinds.get((new, block)) is HoldingKind.OWNED
    if new in survey.living and (old in survey.living or handed_over):
        return new, _alive(floor.follower(block), survey)
    if old in survey.living and survey.kinds.get((old, block)) in (HoldingKind.OWNED, HoldingKind.LEAVING):
        return old, _alive(force.follower(block), survey)
    return None


def _successor(
    chain: Sequence[Configuration], block: int, survey: _Survey, promoted: bool, is_young: bool
) -> NodeId | None:
    """Return who owns a block that no owner has outlived: its best copy or its heir; None: it is lost.

    Args:
        chain: see `decide`.
        block: the block.
        survey: what survivors have.
        promoted: whether an earlier death decided the last configuration of the chain.
        is_young: whether the block was declared since the configuration in force took effect.
    """
    best = _best_copy(chain, block, survey, promoted)
    return _heir(chain, block, survey) if best is None and is_young else best


def _best_copy(chain: Sequence[Configuration], block: int, survey: _Survey, promoted: bool) -> NodeId | None:
    """Return who has the best copy of a block; None: nobody has it as it was seen (rules 15 d and e)."""
    force, floor = _ends(chain, block)
    old, new = force.primary(block), floor.primary(block)
    first = (old, new) if promoted else (old,)
    order = [*first, *_names(floor.follower(block), force.follower(block)), new, *_copies(chain, block)]
    copies = [name for name in order if name in survey.living and (name, block) in survey.versions]
    if not copies:
        return None
    best = max(copies, key=lambda name: survey.versions[name, block])  # the first of equal ones
    return best if survey.versions[best, block] >= survey.seen[block] else None


def _heir(chain: Sequence[Configuration], block: int, survey: _Survey) -> NodeId | None:
    """Return the follower of a block that nobody has: it owns it without values, which the chief gives once more.

    The follower has not had it, so nobody has been told of it. That is known where it has been the block's only
    follower ever since, and where nothing has been restored: of other blocks the chief's first values are not theirs.
    """
    named = [configuration for configuration in chain if block < len(configuration.assignment)]
    (follower, *others) = {configuration.follower(block) for configuration in named}
    is_new = not others and survey.seen[block] == _UNSEEN
    return follower if is_new and follower in survey.living and (follower, block) not in survey.versions else None


def _copies(chain: Sequence[Configuration], block: int) -> list[NodeId]:
    """Return the servers that a chain names for a block."""
    named = [configuration for configuration in chain if block < len(configuration.assignment)]
    return [name for each in named for name in _names(each.primary(block), each.follower(block))]


def _names(*names: NodeId | None) -> list[NodeId]:
    return [name for name in names if name is not None]


def _alive(name: NodeId | None, survey: _Survey) -> NodeId | None:
    return name if name in survey.living else None


def _settled(
    chain: Sequence[Configuration],
    begun: Configuration,
    living: frozenset[NodeId],
    pairs: Sequence[tuple[NodeId, NodeId | None]],
) -> Configuration:
    """Return the configuration of these owners and followers; who was to leave and owns a block again stays.

    Args:
        chain: see `decide`.
        begun: see there.
        living: see there.
        pairs: owner and follower of each block.
    """
    members: dict[NodeId, Member] = {
        server.id: server for configuration in reversed(chain) for server in configuration.servers
    }
    needed = {name for pair in pairs for name in pair if name is not None}
    stay = [server for server in begun.servers if server.id in living]
    back = sorted(needed - {server.id for server in stay})
    servers = (*stay, *(members[name] for name in back))
    index = {server.id: place for place, server in enumerate(servers)}
    named = tuple(index[name] if name is not None else NOBODY for _, name in pairs)
    return replace(
        begun,
        servers=servers,
        assignment=tuple(index[name] for name, _ in pairs),
        followers=named if set(named) - {NOBODY} else (),
    )
