"""Nodes' introductions tell a coordinator without a journal (`rebuilding`) what it is to go on with."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from coordinator.core.callers import Introduction
from coordinator.core.plans.plan import copiers
from coordinator.core.plans.promotion import survivable
from elastic_ps.core.configuration import ConfigId, Configuration, NodeId, Role
from elastic_ps.core.model import Model, Run


def numbers(told: Introduction) -> list[ConfigId]:
    """Return the numbers of configurations that a node remembers."""
    return [*(configuration.id for configuration in told.configurations), told.cancelled]


def beyond(told: Iterable[Introduction], role: Role) -> list[int]:
    """Return the numbers that come after the names of a role that somebody remembers."""
    names = {
        name
        for one in told
        for name in (
            one.member.id,
            *one.dead,
            *(n for configuration in one.configurations for n in configuration.members),
        )
    }
    return [int(name[1:]) + 1 for name in names if name.startswith(role[0])]


def model(told: Iterable[Introduction], block_bytes: int) -> Model:
    """Return the job's model. Tables only grow: the longest are the latest."""
    return Model(max((one.tensors for one in told), key=len, default=()), block_bytes)


@dataclass(frozen=True)
class RebuiltConfiguration:
    """A rebuilt configuration is what introductions come to.

    Attributes:
        known: who told what.
        base: in force where `target` is not yet, or was not when it was committed last; None: `target` is everywhere,
            or nothing was before.
        target: in force somewhere, or armed.
        lagging: who has to go over to it yet.
        unfinished: a plan has to bring that about, or to let go who left.
        ended: the processes that have ended well meanwhile: each one's name, "" where it is not known.
    """

    known: Mapping[NodeId, Introduction]
    base: Configuration | None
    target: Configuration
    lagging: tuple[NodeId, ...]
    unfinished: bool
    ended: tuple[NodeId, ...]

    @property
    def dead(self) -> frozenset[NodeId]:
        """Those who have not come and can be done without, or of whom others have been told that they are dead."""
        workers = frozenset(name for name in self.target.ranks if name not in self.known or name in self._told)
        return (workers - self.finished) | (self._missing_servers if self._survivable else frozenset())

    @property
    def promotes(self) -> bool:
        """Return whether the target was decided after a server's death: who lags holds it as it was before that."""
        held = (self.known[name].prepared for name in self.lagging)
        return any(one is not None and one.id == self.target.id and one.servers != self.target.servers for one in held)

    @property
    def promoted(self) -> tuple[Run, ...]:
        """The runs of blocks of the target that their owners have at once; who is in it has been told."""
        told = (one.promoted for one in self.known.values() if one.number == self.target.id)
        return max(told, key=len, default=())

    @property
    def replicated(self) -> bool:
        """Return whether blocks have followers, before the target or in it: who has copies of them has to say so."""
        return _replicated(self.known)

    @property
    def _told(self) -> frozenset[NodeId]:
        return frozenset(name for one in self.known.values() for name in one.dead)

    @property
    def _chain(self) -> tuple[Configuration, ...]:
        return tuple(each for each in (self.base, self.target) if each is not None)

    @property
    def _missing_servers(self) -> frozenset[NodeId]:
        """The servers that have not come, but for those whose death the target was decided after."""
        before = {server.id for each in self._chain for server in each.servers} - self.known.keys()
        return frozenset(before - (self._told - self.target.members.keys()))

    @property
    def _survivable(self) -> bool:
        return survivable(self._chain, self.known)

    @property
    def finished(self) -> frozenset[NodeId]:
        """The workers that have not come because their scripts have ended."""
        return self._seen_to_end | self._supposed_to_end

    @property
    def supposed_over(self) -> bool:
        """Return whether all scripts seem to have ended, and nobody has seen it of some of them."""
        return bool(self._supposed_to_end) and self.target.ranks.keys() <= self.finished

    @property
    def _missing_workers(self) -> frozenset[NodeId]:
        return frozenset(self.target.ranks.keys() - self.known.keys())

    @property
    def _seen_to_end(self) -> frozenset[NodeId]:
        return self._missing_workers.intersection(self.ended)

    @property
    def _supposed_to_end(self) -> frozenset[NodeId]:
        """The others that have not come, if as many have ended well of whom it is not known who they were.

        Who has left by the target, or was to join by a plan that came to nothing, ends well, too.
        """
        missing = self._missing_workers - self._seen_to_end
        told = {name for one in self.known.values() for each in one.configurations for name in each.members}
        others = told - self.target.members.keys() - self.known.keys() - self._told - set(self.ended)
        return missing if len(missing) <= self.ended.count("") - len(others) else frozenset()

    @property
    def missed(self) -> str:
        """Who has not come and cannot be done without, for people; "": nobody."""
        gone = sorted(self._missing_servers)
        if gone and not self._survivable:
            return f"{', '.join(gone)} did not answer"
        return "no worker answered" if self.target.ranks.keys() <= self.dead else ""


def find(known: Mapping[NodeId, Introduction], ended: tuple[NodeId, ...]) -> RebuiltConfiguration | None:
    """Return what they come to: the highest configuration in force or armed anywhere; None: there is none.

    Args:
        known: what each node told.
        ended: the name of each process that has ended well meanwhile; "" where it is not known.
    """
    force = _latest(one.current for one in known.values())
    if force is None:
        return None
    armed = _latest(
        one.prepared
        for one in known.values()
        if one.prepared is not None
        and not one.undecided
        and (one.clock is not None or _may_be_armed(known, one.prepared))
    )
    target = armed if armed is not None and armed.id > force.id else force
    lagging = tuple(
        name
        for name, one in known.items()
        if one.number < target.id and (name in target.members or (one.prepared and one.prepared.id == target.id))
    )
    base = _before(known, target) or _latest(known[name].current for name in lagging)
    left = any(one.has_left for one in known.values() if one.number == target.id)
    paused = any(one.paused for one in known.values() if one.number == target.id)
    unfinished = bool(lagging) or left or paused or base is not None
    return RebuiltConfiguration(known, base, target, lagging, unfinished, ended)


def _may_be_armed(known: Mapping[NodeId, Introduction], configuration: Configuration) -> bool:
    """Return whether an absent node may have been armed for a configuration that is only prepared at the others.

    So it is where those who have come have answered all that a plan needs for that: they hold it prepared, and who had
    to catch up has. Then it may be in force by now, as one who switches tells its peers; and it can be finished.
    """
    base = _latest(
        one.current for one in known.values() if one.prepared is not None and one.prepared.id == configuration.id
    )
    if base is None:
        return False
    dead = {name for told in known.values() for name in told.dead}
    audience = (base.members.keys() | configuration.members.keys()) - dead
    if audience <= known.keys():
        return False
    came = {name: known[name] for name in audience & known.keys()}
    held = all(
        one.number >= configuration.id or (one.prepared and one.prepared.id == configuration.id)
        for one in came.values()
    )
    paused = any(one.paused for one in came.values())
    to_sync = (configuration.ranks.keys() - base.ranks.keys()) | (
        frozenset() if paused else copiers(base, configuration)
    )
    return held and all(one.synced >= configuration.id for name, one in came.items() if name in to_sync)


def _before(known: Mapping[NodeId, Introduction], target: Configuration) -> Configuration | None:
    """Return what was in force when a plan was committed last, where blocks have followers; None: nobody says so.

    Who has blocks of it may be in no later one, and have to hand them over yet.
    """
    there = [one for one in known.values() if one.number == target.id]
    if any(one.before is None for one in there) or not _replicated(known):
        return None
    servers = [one for one in known.values() if one.member.role is Role.SERVER and one.number < target.id]
    found = [each for one in (*there, *servers) if (each := one.before or one.current) is not None]
    return min(found, key=lambda configuration: (configuration.id, -len(configuration.assignment)), default=None)


def _replicated(known: Mapping[NodeId, Introduction]) -> bool:
    return any(each.followers for one in known.values() for each in one.configurations)


def _latest(configurations: Iterable[Configuration | None]) -> Configuration | None:
    """Return the highest; of several states of it, as the model grew, the last."""
    found = [configuration for configuration in configurations if configuration is not None]
    return max(found, key=lambda configuration: (configuration.id, len(configuration.assignment)), default=None)


def extent(told: Introduction) -> tuple[int, int, bool]:
    """Return a key that orders what nodes know of what the job has declared, which only grows."""
    return len(told.tensors), sum(map(bool, told.optimizers)), told.data is not None and told.data.elastic
