"""One played process: see `played_job`."""

import json
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core import node_answers as na
from coordinator.core import replies
from coordinator.core.callers import Introduction
from coordinator.core.plans.plan import MigrationMode
from coordinator.core.plans.promotion import Holding, HoldingKind
from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId, Configuration, Member, NodeId, Role

if TYPE_CHECKING:
    from tests.coordinator.played_job import World


@dataclass
class PlayedNode:
    """One process."""

    world: "World"
    role: Role
    nonce: str
    id: NodeId = ""
    current: Configuration | None = None
    prepared: Configuration | None = None
    clock: int | None = None
    version: int = 0
    member_once: bool = False
    connected: bool = False
    exited: int | None = None
    inbox: deque = field(default_factory=deque)
    outbox: deque = field(default_factory=deque)
    draws: int = 0
    asked: int | None = None  # the draw that waits; 0: its answer is lost
    held: replies.DrawReply | None = None
    pushed: bool = True
    released: bool = False  # its draw was refused: it waits for its end
    frozen: bool = False  # it does nothing, and its streams stay open
    waits: list = field(default_factory=list)  # what it reports of its peers: Wait
    term: int = 0
    leaving: bool = False
    paused: bool = False
    dead: frozenset = frozenset()
    cancelled: ConfigId = NO_CONFIGURATION
    synced: ConfigId = NO_CONFIGURATION
    tables: tuple = ((), (), None)  # tensors, optimizers, data
    job: tuple[str, str, float] = ("", "", 0.0)  # its identity, what it began from, and when
    copies: frozenset = frozenset()  # blocks that a server has, as owner or not
    level: int = 0  # version of all of them
    owned: frozenset = frozenset()  # those that it has as their owner
    handed: frozenset = frozenset()  # those that have been handed over to it before its switch
    under_way: frozenset = frozenset()  # those that it hands over: they are lost with it
    promoted: tuple = ()  # as the last Adopt said
    before: Configuration | None = None  # until `current` is committed
    undecided: bool = False  # `prepared` is of a server's death: only Adopt says what it comes to
    saves: int = 0  # the highest number in a checkpoint's name
    modules: tuple = ()  # that it may load rules from, as it found them
    mourns: bool = False  # `prepared` is of a death, and so builds on what was armed before

    @property
    def number(self) -> ConfigId:
        return self.current.id if self.current else NO_CONFIGURATION

    @property
    def is_member(self) -> bool:
        return self.current is not None and self.id in self.current.members

    def introduction(self) -> Introduction:
        """As `node.introduction` makes it."""
        tensors, optimizers, data = self.tables
        return Introduction(
            Member(self.id, self.role, "127.0.0.1", 1 if self.role is Role.SERVER else 0),
            1,
            self.nonce,
            self.term,
            self.version,
            self.current,
            self.prepared,
            self.clock,
            self.paused,
            leaving=self.leaving,
            dead=self.dead,
            cancelled=self.cancelled,
            synced=self.synced,
            tensors=tensors,
            optimizers=optimizers,
            data=data,
            block_bytes=64,
            identity=self.job[0],
            begun=self.job[1],
            since=self.job[2],
            promoted=self.promoted,
            before=self.before,
            undecided=self.undecided,
            modules=self.modules,
            saves=self.saves,
        )

    def answer(self, kind, *arguments) -> None:
        self.outbox.append((kind, arguments))

    def handle(self, directive) -> None:
        name = f"on_{type(directive).__name__.lower()}"
        getattr(self, name, lambda _directive: None)(directive)

    def on_welcome(self, welcome) -> None:
        self.tables = (welcome.tensors, welcome.optimizers, welcome.data)
        self.job = (welcome.identity, welcome.begun, welcome.since)
        self.saves = max(self.saves, welcome.saves)
        if welcome.configuration is not None and not self.is_member and welcome.configuration.id > self.number:
            assert self.prepared is None or self.prepared.id != welcome.configuration.id
            self.current = welcome.configuration
        elif welcome.configuration is not None and welcome.configuration.id == self.number:
            self.grow(welcome.configuration.assignment, welcome.configuration.followers)

    def on_prepare(self, prepare) -> None:
        table = prepare.configuration
        self.paused = prepare.migration is MigrationMode.PAUSE
        self.leaving = self.id not in table.members
        self.dead |= set(prepare.dead)
        if table.id <= self.number:
            self.answer(na.Switched, table.id, self.version)
            return
        if self.prepared is None or table.id > self.prepared.id:
            self.prepared, self.clock, self.undecided = table, None, prepare.undecided
            self.mourns = bool(prepare.dead)
            if not prepare.dead:
                self.before = None
                self.copies |= self.named(table)
                self.level = max([self.level, *(n.level for n in self.world.alive if n.role is Role.SERVER)])
                self.promoted = ()
        self.answer(na.Prepared, table.id, self.version, self.holdings() if prepare.undecided else ())
        self.synced = table.id
        self.answer(na.Synced, table.id, self.version)

    def named(self, table: Configuration | None) -> frozenset[int]:
        """The blocks of which a configuration gives a server a copy."""
        blocks = range(len(table.assignment)) if table is not None else ()
        return frozenset(block for block in blocks if self.id in (table.primary(block), table.follower(block)))

    def holdings(self) -> tuple[Holding, ...]:
        """What it answers when a server has died."""
        if self.current is None:
            return ()
        if self.role is Role.WORKER:
            return (Holding(HoldingKind.SEEN, self.version, ((0, len(self.current.assignment)),)),)
        owned = self.owned if self.world.state.settings.replicas else self.own(self.current)
        kinds = ((HoldingKind.OWNED, owned), (HoldingKind.COPY, self.copies - owned))
        return tuple(
            Holding(kind, self.level, tuple((block, 1) for block in sorted(own))) for kind, own in kinds if own
        )

    def on_arm(self, arm) -> None:
        assert self.world.data.is_sync, "a clock where there is none"
        if arm.number == self.number:
            self.answer(na.Switched, arm.number, self.version)
        elif self.prepared is not None and self.prepared.id == arm.number:
            if self.version > arm.clock:
                self.answer(na.Late, arm.number, self.version)
                return
            self.clock = arm.clock
            self.answer(na.Armed, arm.number, self.version)
            self.reach()

    def reach(self) -> None:
        if self.clock is not None and self.version >= self.clock:
            self.switch()

    def on_adopt(self, adopt) -> None:
        if adopt.number == self.number:
            self.answer(na.Switched, adopt.number, self.version)
            self.arrive()
        elif self.prepared is not None and self.prepared.id == adopt.number:
            if adopt.decided is not None:
                self.prepared = adopt.decided
                owned = self.own(adopt.decided)
                assert owned <= self.copies, f"{self.id} has no copy of {owned - self.copies}"
                self.promoted = adopt.promoted
            self.switch()

    def own(self, table: Configuration | None) -> frozenset[int]:
        """The blocks that a configuration gives this server."""
        return frozenset(table.blocks_of.get(self.id, ()) if table is not None else ())

    @property
    def holds_all(self) -> bool:
        """Whether it is the owner of all that its configuration gives it; without followers nobody says it."""
        return self.own(self.current) <= self.owned or not self.world.state.settings.replicas

    def arrive(self) -> None:
        """States, not events: each SWITCHED says them again."""
        if self.role is Role.SERVER and self.holds_all:
            self.answer(na.Arrived, self.number)
        if self.role is Role.SERVER and self.world.state.settings.replicas:
            self.answer(na.Followed, self.number)

    def switch(self) -> None:
        assert self.prepared is not None
        assert self.prepared.id not in self.world.numbers.cancelled, f"{self.id} switches to a cancelled configuration"
        leaver = self.is_member and self.id not in self.prepared.members
        before, self.current, self.prepared, self.clock = self.current, self.prepared, None, None
        self.undecided, self.before = False, self.before or before
        self.take_over(before)
        if self.is_member:
            self.member_once = True
            if self.world.data.is_sync:
                self.version = max([self.version, *(n.version for n in self.world.alive if n.is_member)])
        self.answer(na.Switched, self.current.id, self.version, 1.5 if self.role is Role.WORKER else 0.0, 7)
        self.arrive()
        if leaver and self.role is Role.WORKER:
            self.answer("exit", 0)

    def take_over(self, before: Configuration | None) -> None:
        """Own what was handed over or promoted, and hand over what others own now."""
        assert self.current is not None
        mine = self.own(self.current)
        promoted = frozenset(block for first, count in self.promoted for block in range(first, first + count))
        self.owned = (self.owned | self.handed) - (promoted - mine) | (promoted & mine)
        if before is None or not before.assignment:  # a start
            self.owned |= mine
        self.handed = frozenset()
        self.under_way = (self.under_way | self.owned) - mine - promoted
        self.owned &= mine

    def hand_over(self) -> None:
        """What is under way arrives at who lives."""
        for block in self.under_way:
            owner = self.world.node(self.current.primary(block))
            if owner is not None:
                owner.take(block, self.current)
                self.under_way -= {block}

    def take(self, block: int, table: Configuration) -> None:
        """A block is handed over to this server."""
        if self.number < table.id:
            self.handed |= {block}
        elif block in self.own(self.current):
            self.owned |= {block}
            self.arrive()

    def on_cancelorder(self, cancel) -> None:
        assert self.number != cancel.number, f"{self.id} is in the cancelled configuration {cancel.number}"
        self.cancelled = max(self.cancelled, cancel.number)
        if self.prepared is not None and self.prepared.id == cancel.number:
            if not self.mourns:  # else every copy may be needed
                self.copies &= self.named(self.current)
            self.prepared, self.clock, self.undecided = None, None, False
        self.answer(na.Forgotten, cancel.number)
        if cancel.leave:
            self.answer("exit", 0)

    def on_committed(self, committed) -> None:
        if self.number == committed.number and self.prepared is None:
            self.copies &= self.named(self.current)
            self.before, self.promoted = None, ()
        if self.role is Role.SERVER and self.member_once and not self.is_member:
            self.answer("exit", 0)

    def on_extend(self, extend) -> None:
        self.tables = (extend.tensors, extend.optimizers, extend.data)
        if self.current is not None:
            self.grow(extend.assignment, extend.followers)
        self.answer(na.Extended, extend.growth)

    def grow(self, assignment, followers) -> None:
        """Blocks that are new in the configuration in force are here at once, where it gives them to this server."""
        known = len(self.current.assignment)
        self.current = self.current.extended(assignment, followers)
        self.copies |= self.named(self.current)
        self.owned |= frozenset(block for block in self.own(self.current) if block >= known)

    def on_tryoptimizer(self, trial) -> None:
        self.answer(na.Tried, trial.optimizer, self.world.refused_optimizers.get(self.id, ""))

    def on_saveblocks(self, save) -> None:
        self.saves = max(self.saves, save.clock)
        blocks = self.own_part() if self.role is Role.WORKER else self.current.blocks_of[self.id]
        entry = {"file": f"{self.id}.bin", "version": self.version if self.world.data.is_sync else 3}
        detail = json.dumps({"blocks": {str(block): entry for block in blocks}, "applied": self.applied(blocks)})
        self.answer(na.Saved, save.clock, detail)

    def own_part(self):
        """The blocks that a worker of a job without servers saves."""
        return range(self.current.ranks[self.id], len(self.world.state.job.model.blocks), len(self.current.ranks))

    def applied(self, blocks) -> dict:
        """What a server says that its blocks have taken: all that was given."""
        given = self.world.batches.applied.items()
        return {origin: [[block, 1, last] for block in blocks] for origin, last in given}

    def on_stoporder(self, stop) -> None:
        self.answer("exit", 75 if stop.restart else int(stop.failed))

    # ---- batches -----------------------------------------------------------------------------------------------------

    def draw(self) -> None:
        """A worker without a clock: hear the answer, else push what is held, else draw the next."""
        world = self.world
        if self.released or world.state.job.is_sync or self.id not in world.state.job.nodes:
            return
        if self.asked is not None:
            self.hear_draw()
        elif not self.pushed:
            self.pushed = True
            self.version += 1
            world.batches.take(self.held)
        else:
            self.draws += 1
            self.ask_draw()

    def ask_draw(self) -> None:
        term = self.world.state.job.term
        self.world.ask(ev.DrawAsked, self.id, self.draws, self.held.epoch if self.held else None)
        lost = self.world.asked not in self.world.replies and term != self.world.state.job.term
        self.asked = 0 if lost else self.world.asked

    def hear_draw(self) -> None:
        if not self.asked:
            self.ask_draw()
        reply = self.world.replies.get(self.asked)
        if isinstance(reply, ef.Refuse):
            assert reply.why is ef.Why.ENDING, reply.text
            self.released = True
        elif reply is not None:
            self.asked, self.held, self.pushed = None, reply, reply.over
