"""Where blocks have followers, nobody is told what a follower lacks, and nobody says that it has what it has not.

It looks at the frames that nodes queue, at the coordinator's state and at what lies in servers' stores; not at what
servers believe of each other.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from coordinator.core.job import DurableJob
from coordinator.core.plans.plan import MigrationMode, Phase, Plan, PlanKind
from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, Configuration, NodeId
from elastic_ps.core.model import members
from elastic_ps.server.phases import BlockStatus
from elastic_ps.transport.frame_kinds import Kind
from elastic_ps.transport.frame_metas import RecordMeta
from tests.world.faults.cells import SERVER, WORKER
from tests.world.kernel.scheduler import DEAD, Process

NOTHING = -1
_WITHOUT_VALUES = frozenset({int(BlockStatus.ABSENT), int(BlockStatus.EMPTY)})


class Copies:
    """See the module. It does nothing in a job without replicas.

    Args:
        world: whose job it is.
    """

    def __init__(self, world: Any):
        self._world = world
        self._configurations: dict[ConfigId, Configuration] = {}
        self._servers: dict[NodeId, Process] = {}
        self._said: dict[tuple[Process, Process], dict[int, int]] = defaultdict(dict)  # by FOLLOWED: from, to, of what
        self._given: dict[int, int] = {}  # by block: the highest version that an owner has given since the last restore
        self._void = NO_CONFIGURATION  # the last before it
        self._job: DurableJob | None = None
        self._ended = 0  # id of the last plan that has ended
        self._saved: Mapping[NodeId, str] = {}  # what servers have said of the checkpoint that is being saved

    # ---- what is seen ------------------------------------------------------------------------------------------------

    def began(self, process: Process) -> None:
        """Take note of a server."""
        self._servers[process.server.node] = process

    def queued(self, process: Process, link: Any, frame: Any) -> None:
        """Look at a frame that a process queues."""
        kind = frame.kind
        if kind is Kind.FOLLOWED:
            self._check_followed(process, link, frame)
        elif process.role == SERVER and kind in (Kind.VALUE, Kind.SNAPSHOT, Kind.HANDOVER):
            other = link.connection.end.other.process
            if (kind is Kind.HANDOVER) if other.role == SERVER else other.role == WORKER:
                self._check_told(process, other, frame)

    def saw(self, state: Any) -> None:
        """Look at a new state of the coordinator."""
        saved = state.saving.saved if state.saving is not None else {}
        for name in saved.keys() - self._saved.keys():
            self._check_saved(self._servers[name], json.loads(saved[name])["blocks"])
        self._saved = saved
        before, job = self._job, state.job
        if job is before:
            return
        self._job = job
        for configuration in _settled(job):
            self._configurations[configuration.id] = configuration
        if before is None:
            return
        if job.loading or len(job.voids) != len(before.voids):
            self._given.clear()
            self._void = max(self._configurations, default=NO_CONFIGURATION)
        old, new = before.plan, job.plan
        if new is not None and old is not None and old.id == new.id:
            if new.phase is Phase.ARMED is not old.phase:
                self._check_armed(new)
            if new.decided and not old.decided:
                self._check_promoted(new)
        last = state.history[-1] if state.history else None
        if last is not None and last.id > self._ended:
            self._ended = last.id
            if last.phase is Phase.COMMITTED and job.configuration is not None:
                self._check_committed(job.configuration)

    # ---- what must hold ----------------------------------------------------------------------------------------------

    def _check_followed(self, follower: Process, link: Any, frame: Any) -> None:
        """What is acknowledged is in the follower's store, but for the update that it is about to make."""
        owner, handled = link.connection.end.other.process, link.connection.frame
        said = self._said[follower, owner]
        brought: frozenset[int] = frozenset()
        if handled is not None and isinstance(handled.meta, RecordMeta) and handled.version == frame.version - 1:
            brought = frozenset(members([*handled.runs, *handled.meta.absent]))
        for block in members(frame.runs):
            held = self._holds(follower, block)
            if held < frame.version and not (held == frame.version - 1 and block in brought):
                self._wrong(f"{follower} acknowledges block {block} at version {frame.version}, and holds {held}")
            said[block] = max(said.get(block, NOTHING), frame.version)

    def _check_told(self, owner: Process, other: Process, frame: Any) -> None:
        """Nobody gets a version of a block before the follower has it that the owner's configuration names.

        A follower that is expelled can have it no more: then another server has it, who has just handed the block over.
        """
        number = frame.configuration
        for block in members(frame.runs):
            held = self._holds(owner, block)
            version = frame.version if self._world.draw.mode == "sync" and frame.kind is not Kind.SNAPSHOT else held
            if frame.kind is Kind.VALUE and number > self._void:
                self._given[block] = max(self._given.get(block, NOTHING), version)
            follower = self._follower(number, block)
            if follower in (None, owner) or (frame.kind is Kind.HANDOVER and follower is other):
                continue
            known = self._known(follower, owner, block, number)
            if follower.server.node in owner.server.standing.dead:
                others = (each for each in self._servers.values() if each is not owner and each.state != DEAD)
                known = max([known, *(self._holds(each, block) for each in others)])
            if known < version and not (frame.kind is Kind.HANDOVER and frame.meta.empty):
                self._wrong(
                    f"{owner} tells {other} of block {block} at version {version} ({frame.kind.name}), of which its "
                    f"follower {follower} has {known}"
                )

    def _check_saved(self, owner: Process, blocks: Mapping[str, Any]) -> None:
        """What a checkpoint holds of a block its follower has, or had in the configuration before."""
        standing = owner.server.standing
        numbers = {known.id for known in (standing.current, standing.before) if known is not None}
        for block, entry in ((int(text), entry) for text, entry in blocks.items()):
            followers = [self._follower(number, block) for number in numbers]
            if None in followers:
                continue
            known = max(max(self._said[f, owner].get(block, NOTHING), self._holds(f, block)) for f in followers if f)
            if known < entry["version"]:
                self._wrong(
                    f"{owner} has saved block {block} at version {entry['version']}, of which its follower has {known}"
                )

    def _check_armed(self, plan: Plan) -> None:
        """Who is to own or follow a block in a plan that is armed has a copy by now, where it did not have to wait."""
        base, target = plan.base, plan.target
        if base is None or target is None or plan.kind is not PlanKind.SCALE or plan.fell_back:
            return
        if plan.migration is not MigrationMode.LIVE:
            return
        for block in range(len(base.assignment)):
            owner = self._servers[base.primary(block)]
            for name in _named(target, block) - _named(base, block):
                server = self._servers[name]
                lacks = self._holds(server, block) == NOTHING and self._holds(owner, block) != NOTHING
                if lacks and DEAD not in (server.state, owner.state):
                    self._wrong(f"plan {plan.id} is armed, and {server} has no copy of block {block}")

    def _check_promoted(self, plan: Plan) -> None:
        """Who goes on with a dead owner's block has all of it that workers were given, if any that lives has that."""
        assert plan.target is not None
        for block in members(plan.promoted):
            chosen = plan.target.primary(block)
            candidates = set().union(*(_named(known, block) for known in plan.chain)) & set(plan.audience)
            best = max((self._has(self._servers[name], block) for name in candidates), default=NOTHING)
            wanted, has = min(self._given.get(block, NOTHING), best), self._has(self._servers[chosen], block)
            if has < wanted:
                self._wrong(f"{chosen} goes on with block {block} at version {has}, workers were given {wanted}")
            self._given[block] = wanted  # what nobody has any more nobody has seen

    def _check_committed(self, configuration: Configuration) -> None:
        """The followers of a configuration that is committed have all that any worker was given."""
        for block in range(len(configuration.assignment)):
            server, given = self._follower(configuration.id, block), self._given.get(block, NOTHING)
            if server is not None and server.state != DEAD and (has := self._has(server, block)) < given:
                self._wrong(
                    f"{server} follows block {block} by configuration {configuration.id}, which is committed, at "
                    f"version {has}: workers were given {given}"
                )

    # ---- who has what ------------------------------------------------------------------------------------------------

    def _follower(self, number: ConfigId, block: int) -> Process | None:
        """Return the server that follows a block in a configuration; None: nobody does."""
        configuration = self._configurations.get(number)
        if configuration is None or not configuration.followers or block >= len(configuration.assignment):
            return None
        name = configuration.follower(block)
        return self._servers.get(name) if name is not None else None

    def _holds(self, server: Process, block: int) -> int:
        """Return the version of a block that is in a server's store; -1: none is."""
        store = server.server.store
        if block >= len(store.status) or int(store.status[block]) in _WITHOUT_VALUES:
            return NOTHING
        return int(store.versions[block])

    def _known(self, follower: Process, owner: Process, block: int, number: ConfigId) -> int:
        """Return the version that an owner may take its follower to have, in a configuration.

        A dead follower, or one that has switched to a later configuration, has what it has acknowledged, perhaps to the
        owner before, who waited for that. One that acknowledges an update makes it next.
        """
        held = self._holds(follower, block)
        if follower.state == DEAD or follower.server.standing.config_id > number:
            return max(self._acknowledged(follower, block), held)
        return self._next(held, self._said[follower, owner].get(block, NOTHING))

    def _has(self, server: Process, block: int) -> int:
        """Return the version of a block that a server has, or has acknowledged and makes next."""
        return self._next(self._holds(server, block), self._acknowledged(server, block))

    def _acknowledged(self, follower: Process, block: int) -> int:
        """Return the highest version of a block that a server has acknowledged, to whomever."""
        return max(
            (said.get(block, NOTHING) for (by, _), said in self._said.items() if by is follower), default=NOTHING
        )

    @staticmethod
    def _next(held: int, said: int) -> int:
        """Return the version that a server has, or makes next, since it has acknowledged that."""
        return held + 1 if said > held > NOTHING else held

    def _wrong(self, what: str) -> None:
        if not self._world.failures:
            self._world.fail(what)


def _settled(job: DurableJob) -> Iterator[Configuration]:
    if job.configuration is not None:
        yield job.configuration
    if job.plan is not None and job.plan.target is not None and not job.plan.undecided:
        yield job.plan.target


def _named(configuration: Configuration, block: int) -> set[NodeId]:
    if block >= len(configuration.assignment):
        return set()
    follower = configuration.follower(block)
    return {configuration.primary(block)} | ({follower} if follower is not None else set())
