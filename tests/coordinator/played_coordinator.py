"""The coordinator of a played job: `step`, a journal of text, and what every step must keep to."""

import json
from dataclasses import dataclass, field, replace

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core.batches.async_batches import Book
from coordinator.core.directives import standing, wanted
from coordinator.core.job import CancelOrder, DurableJob
from coordinator.core.plans.plan import Phase, Plan
from coordinator.core.protocol import step
from coordinator.core.state import CoordinatorSettings, State
from coordinator.dataclass_json import decode, encode
from elastic_ps.core.configuration import ConfigId, NodeId


class PlayedJournal:
    """What a coordinator that is started again finds."""

    def __init__(self, state: State):
        self.job = json.dumps(encode(state.job))
        self.book = json.dumps(encode(state.book))
        self.plans: dict[int, str] = {}

    def write(self, effect: ef.WriteJournal) -> None:
        if effect.job:
            self.job = json.dumps(encode(effect.job))
        if effect.book:
            self.book = json.dumps(encode(effect.book))
        self.plans.update({plan.id: json.dumps(encode(plan)) for plan in effect.plans})

    def load(self, settings: CoordinatorSettings) -> State:
        plans = [decode(Plan, json.loads(plan)) for _, plan in sorted(self.plans.items())]
        return State(
            settings, decode(DurableJob, json.loads(self.job)), tuple(plans), decode(Book, json.loads(self.book))
        )


@dataclass
class Numbers:
    """Numbers of configurations over a job's life: they grow, and a cancelled one does not come into force."""

    prepared: list[ConfigId] = field(default_factory=list)
    cancelled: set[ConfigId] = field(default_factory=set)
    ordered: set[ConfigId] = field(default_factory=set)  # by an Arm or Adopt that was sent

    def check_prepared(self, number: ConfigId) -> None:
        if number not in self.prepared:
            assert not self.prepared or number > max(self.prepared), "numbers grow"
            assert number not in self.cancelled, "a cancelled number is used again"
            self.prepared.append(number)

    def check_cancelled(self, number: ConfigId) -> None:
        assert number not in self.ordered, "an armed plan is cancelled"
        self.cancelled.add(number)


def check_journalled(before: State, after: State, effects: list) -> None:
    """What changed is journalled before anybody hears of it."""
    kinds = [type(effect) for effect in effects]
    assert ef.WriteJournal not in kinds[1:], "the journal comes first, once"
    journal = effects[0] if kinds[:1] == [ef.WriteJournal] else ef.WriteJournal(None)
    if after.job != before.job:
        assert journal.job == after.job, "a changed job that is not journalled"
    if after.book != before.book:
        assert journal.book == after.book, "a changed book that is not journalled"
    for effect in effects:
        if isinstance(effect, ef.Send) and isinstance(effect.directive, ef.Arm):
            plan = (journal.job or before.job).plan
            assert plan.phase is Phase.ARMED
            assert plan.clock == effect.directive.clock


def check_told(before: State, after: State, effects: list) -> None:
    """Whoever has to know or do something new is told, and launchers are."""
    told = [(effect.node, effect.directive) for effect in effects if isinstance(effect, ef.Send)]
    for name in after.job.nodes:
        known = standing(before, name)
        for directive in standing(after, name):
            assert directive in known or (name, directive) in told, f"{name} is not told of {directive}"
    if wanted(after.job) != wanted(before.job):
        assert effects[-1] == ef.Announce(wanted(after.job)), "launchers are not told"


class PlayedCoordinator:
    """Events in, effects kept; it dies where a test says so, and starts again from its journal."""

    def __init__(self, settings: CoordinatorSettings, job: DurableJob):
        self.now = 1000.0
        self.first = job
        self.state = State(settings, job)
        self.journal = PlayedJournal(self.state)
        self.numbers = Numbers()
        self.replies: dict[int, object] = {}
        self.effects: list = []
        self.logs: list[str] = []
        self.wanted = None
        self.asked = 0
        self.kill_after: int | None = None  # it dies when it has done this many effects more

    def post(self, event: ev.JobEvent) -> None:
        """One step and its effects."""
        before = self.state
        self.state, effects = step(self.state, event)
        check_journalled(before, self.state, effects)
        check_told(before, self.state, effects)
        for directive in (effect.directive for effect in effects if isinstance(effect, ef.Send)):
            if isinstance(directive, ef.Prepare):
                self.numbers.check_prepared(directive.configuration.id)
            elif isinstance(directive, CancelOrder):
                self.numbers.check_cancelled(directive.number)
        for effect in effects:
            if self.kill_after == 0:
                self.kill_coordinator()
                return
            if self.kill_after is not None:
                self.kill_after -= 1
            self.act(effect)

    def act(self, effect) -> None:
        self.effects.append(effect)
        if isinstance(effect, ef.WriteJournal):
            self.journal.write(effect)
        elif isinstance(effect, ef.Send):
            if isinstance(effect.directive, ef.Arm | ef.Adopt):
                self.numbers.ordered.add(effect.directive.number)
            self.deliver(effect.node, effect.directive)
        elif isinstance(effect, ef.Reply):
            self.replies[effect.to] = effect.reply
        elif isinstance(effect, ef.Refuse):
            self.replies[effect.to] = effect
        elif isinstance(effect, ef.Announce):
            self.wanted = effect.wanted
        elif isinstance(effect, ef.Log):
            self.logs.append(effect.text)

    def deliver(self, node: NodeId, directive) -> None:
        """A directive sets out for a node."""
        raise NotImplementedError

    def kill_coordinator(self) -> None:
        """It dies, and is started again from its journal."""
        self.kill_after = None
        self.state = self.journal.load(self.state.settings)
        self.post(ev.Started(self.now))
        self.post(ev.Attached(self.now, 1))
        self.wanted = wanted(self.state.job)  # a launcher that attaches is told

    def lose_journal(self) -> None:
        """It dies with all it has written, and is started again in a higher term."""
        self.kill_after = None
        term = self.state.job.term
        self.state = State(self.state.settings, replace(self.first, identity="made anew"))
        self.journal = PlayedJournal(self.state)
        self.post(ev.Started(self.now, term + 1))
        self.post(ev.Attached(self.now, 1))

    def ask(self, kind, *arguments, **named):
        """An operator's call; returns what it was answered, None: not yet."""
        self.asked += 1
        number = self.asked
        if self.state.rebuilding is not None and kind is not ev.Joined:  # as the service does
            self.replies[number] = ef.Refuse(number, ef.Why.AGAIN, "the coordinator asks its nodes")
            return self.replies[number]
        self.post(kind(self.now, number, *arguments, **named))
        return self.replies.get(number)

    def tick(self, seconds: float = 0.5) -> None:
        self.now += seconds
        self.post(ev.Tick(self.now))

    def sent(self, kind, node: NodeId | None = None) -> list:
        """Directives of this kind (or kinds) that have been sent, to all or to one node."""
        sends = [effect for effect in self.effects if isinstance(effect, ef.Send) and node in (None, effect.node)]
        return [send.directive for send in sends if isinstance(send.directive, kind)]

    @property
    def plan(self) -> Plan | None:
        return self.state.job.plan

    @property
    def records(self) -> list[Plan]:
        return list(self.state.history)

    @property
    def counts(self) -> tuple[int, int]:
        """Workers and servers in force."""
        configuration = self.state.job.configuration
        return (len(configuration.workers), len(configuration.servers)) if configuration else (0, 0)
