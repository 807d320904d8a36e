"""Interleavings, lost streams, repeated answers, deaths, frozen nodes, lost coordinators: every job comes to rest."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core.job import CancelOrder
from coordinator.core.nodes.failure_detection import LONG_SECONDS
from coordinator.core.nodes.removals import fails_without
from coordinator.core.plans.plan import MigrationMode, Phase
from elastic_ps.core.configuration import Role
from elastic_ps.core.model import Tensor
from tests.coordinator.played_job import ASYNC, DATA, OPTIMIZER, SSP, World

PICK = st.integers(0, 1000)


class Cluster(RuleBasedStateMachine):
    """See the module."""

    @initialize(
        workers=st.integers(1, 3),
        servers=st.integers(1, 3),
        declare=st.booleans(),
        data=st.sampled_from([DATA, ASYNC, SSP]),
        names_exits=st.booleans(),
    )
    def begin(self, workers, servers, declare, data, names_exits):
        self.world = World(workers, servers, declare, data)
        self.world.names_exits = names_exits
        self.world.post(ev.Attached(self.world.now, 1))
        self.tensors = 0
        self.numbers = (0, 0)

    def pick(self, nodes, index):
        return nodes[index % len(nodes)] if nodes else None

    @rule(index=PICK, count=st.integers(1, 6))
    def hear(self, index, count):
        node = self.pick([n for n in self.world.alive if n.inbox], index)
        for _ in range(count):
            if node is not None and node.inbox:
                self.world.hear(node)

    @rule(index=PICK, count=st.integers(1, 6))
    def speak(self, index, count):
        node = self.pick([n for n in self.world.alive if n.outbox], index)
        for _ in range(count):
            if node is not None and node.outbox and node.exited is None:
                self.world.speak(node)

    @rule(index=PICK)
    def speak_twice(self, index):
        node = self.pick([n for n in self.world.alive if n.outbox and n.outbox[0][0] != "exit"], index)
        if node is not None:
            self.world.speak(node, again=True)

    @rule(index=PICK)
    def connect(self, index):
        node = self.pick([n for n in self.world.alive if not n.connected], index)
        if node is not None:
            self.world.listen(node)

    @rule(index=PICK)
    def lose_stream(self, index):
        node = self.pick([n for n in self.world.alive if n.connected], index)
        if node is not None:
            node.connected = False
            node.inbox.clear()

    @rule(index=PICK)
    def lose_directive(self, index):
        """The tick sends it again, if an answer is owed."""
        lost = (ef.Prepare, ef.Arm, ef.Adopt, CancelOrder)
        node = self.pick([n for n in self.world.alive if n.inbox and isinstance(n.inbox[0], lost)], index)
        if node is not None:
            node.inbox.popleft()

    @rule(index=PICK, count=st.integers(1, 5))
    def train(self, index, count):
        for _ in range(count):
            node = self.pick([n for n in self.world.alive if n.role is Role.WORKER], index)
            if node is not None:
                self.world.train(node)
                self.world.report(node)
            index += 1

    @rule(index=PICK)
    def notice(self, index):
        node = self.pick(self.world.alive, index)
        if node is not None:
            self.world.notice(node)

    @rule(index=PICK)
    def freeze(self, index):
        """A worker, or who joins, does nothing from now on, and nobody resets its connections."""
        job = self.world.state.job
        held = set(job.members) | set(job.plan.audience if job.plan is not None else ())
        able = [n for n in self.world.alive if n.id and (n.role is Role.WORKER or n.id not in held)]
        node = self.pick(able, index)
        if node is not None:
            node.frozen = True

    @rule(index=PICK)
    def thaw(self, index):
        node = self.pick(self.world.frozen, index)
        if node is not None:
            node.frozen = False

    @rule()
    def launcher(self):
        self.world.launcher()

    @rule(turns=st.integers(1, 6))
    def go_on(self, turns):
        for _ in range(turns):
            self.world.turn()

    @rule(seconds=st.floats(0.1, 3))
    def tick(self, seconds):
        for node in self.world.alive:
            self.world.report(node)
        self.world.tick(seconds)

    @rule(
        workers=st.integers(1, 4), servers=st.integers(1, 4), queue=st.booleans(), mode=st.sampled_from(MigrationMode)
    )
    def scale(self, workers, servers, queue, mode):
        if mode is MigrationMode.LIVE:
            self.world.ask(ev.ScaleAsked, workers, servers, queue=queue)

    @rule(index=PICK)
    def drain(self, index):
        node = self.pick(self.world.alive, index)
        if node is not None and node.id:
            self.world.ask(ev.DrainAsked, node.id)

    @rule(index=PICK)
    def leave(self, index):
        node = self.pick([n for n in self.world.alive if n.id in self.world.state.job.nodes], index)
        if node is not None:
            self.world.ask(ev.LeaveAsked, node.id, node.role)

    @rule()
    def cancel(self):
        self.world.ask(ev.CancelAsked)

    @rule(role=st.sampled_from(Role))
    def by_hand(self, role):
        if len(self.world.alive) < 9:
            self.world.spawn(role)

    @rule(index=PICK)
    def declare(self, index):
        node = self.pick([n for n in self.world.alive if n.is_member and n.role is Role.WORKER], index)
        if node is not None and node.id in self.world.state.job.nodes:
            self.tensors += 1
            tensor = Tensor(0, f"s:{self.tensors}", (40,), "float32")
            self.world.declare(node, [tensor], self.world.data, optimizer=OPTIMIZER)

    @rule(index=PICK)
    def kill_worker(self, index):
        workers = [n for n in self.world.alive if n.role is Role.WORKER]
        members = [n for n in workers if n.id in self.world.state.job.members]
        node = self.pick(workers, index)
        if node is not None and (node not in members or len(members) > 1):
            self.world.kill(node)

    @rule(index=PICK)
    def kill_joining_server(self, index):
        job = self.world.state.job
        armed = job.plan is not None and job.plan.phase is Phase.ARMED
        held = set(job.members) | (set(job.plan.audience) if armed else set())
        node = self.pick([n for n in self.world.alive if n.role is Role.SERVER and n.id not in held], index)
        if node is not None and not armed:
            self.world.kill(node)
            self.world.launcher()

    @precondition(lambda self: self.world.data.is_sync)
    @rule()
    def lose_journal(self):
        """A coordinator that dies with all it has written; its nodes remember."""
        self.world.lose_journal()

    @rule(after=st.integers(0, 12), index=PICK)
    def kill_coordinator(self, after, index):
        """In the middle of the effects of the next event, which is one that has many."""
        self.world.kill_after = after
        node = self.pick([n for n in self.world.alive if n.outbox and n.outbox[0][0] != "exit"], index)
        if node is not None and node.id in self.world.state.job.nodes:
            kind, arguments = node.outbox[0]  # not answered: the node sends it again
            self.world.post(kind(self.world.now, node.id, *arguments))
        else:
            self.world.tick(0.1)
        if self.world.kill_after is not None:  # it had no more than these
            self.world.kill_coordinator()

    @precondition(lambda self: hasattr(self, "world"))
    @invariant()
    def plans_are_in_the_table(self):
        job = self.world.state.job
        assert (job.term, job.number) >= self.numbers
        self.numbers = (job.term, job.number)
        if job.plan is not None and job.plan.target is not None:
            assert job.plan.target.workers, "a configuration without workers"
            assert job.plan.target.servers, "a configuration without servers"

    def teardown(self):
        if hasattr(self, "world"):
            self.world.comes_to_rest(400)
            frozen = frozenset(node.id for node in self.world.frozen)  # by now who was killed is known to be dead
            awaited = LONG_SECONDS if frozen and fails_without(self.world.state, frozen) else 0.0
            self.world.settle(int(2 * awaited))
            self.world.check_batches()


Cluster.TestCase.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
TestCluster = Cluster.TestCase
TestCluster.pytestmark = [pytest.mark.slow]
