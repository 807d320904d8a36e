"""The interleavings of `test_protocol_stateful`, in a job whose blocks have followers: servers die too, one at a time.

While all blocks are protected a server may die at any moment, whatever else is under way: the job never goes back.
"""

import re

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from coordinator.core import events as ev
from coordinator.core.directives import unextended
from coordinator.core.plans.plan import PlanKind
from coordinator.core.plans.protection import protection
from elastic_ps.core.configuration import Role
from tests.coordinator.core.test_protocol_stateful import PICK, Cluster
from tests.coordinator.played_job import ASYNC, DATA, SSP, World

GONE_BACK = re.compile(r"(server s\d+ died|nobody has|s\d+ did not answer).* goes back to its last checkpoint")


class ReplicatedCluster(Cluster):
    """See the module."""

    @initialize(
        workers=st.integers(1, 3),
        servers=st.integers(2, 4),
        data=st.sampled_from([DATA, ASYNC, SSP]),
    )
    def begin(self, workers, servers, data):
        self.world = World(workers, servers, True, data, replicas=1)
        self.world.post(ev.Attached(self.world.now, 1))
        self.tensors = 0
        self.numbers = (0, 0)

    def may_lose_a_server(self):
        """All is protected, and nobody else is dead or dying; a model that grows may need its checkpoint."""
        world, job = self.world, self.world.state.job
        found = protection(job)
        named = [server for each in (job.plan.chain if job.plan else ()) for server in each.servers]
        servers = {server.id for server in (*job.configuration.servers, *named)} if job.configuration else set()
        calm = not job.dead and not world.exits and not world.frozen and world.state.rebuilding is None
        known = not world.state.declarations and not world.state.told and not unextended(world.state)
        death = job.plan is not None and job.plan.kind is PlanKind.DEATH
        alive = all(world.node(name) is not None for name in servers)
        return calm and known and not death and alive and found.blocks == found.all_blocks > 0

    @rule(index=PICK)
    def kill_joining_server(self, index):
        """While the state is put together nobody can say who only joins."""
        if self.world.state.rebuilding is None:
            super().kill_joining_server(index)

    @rule(index=PICK)
    def freeze(self, index):
        if self.world.state.rebuilding is None:
            super().freeze(index)

    @rule(index=PICK)
    def declare(self, index):
        """New blocks are protected when all servers know of them: who dies before takes the job to its checkpoint."""
        if all(self.world.node(name) for name in self.world.state.job.members):
            super().declare(index)

    @rule(index=PICK)
    def kill_server(self, index):
        for _ in range(8):
            if self.may_lose_a_server():
                break
            self.world.turn()
        else:
            return
        members = self.world.state.job.members
        node = self.pick([n for n in self.world.alive if n.role is Role.SERVER and n.id in members], index)
        if node is not None:
            self.world.kill(node)

    @precondition(lambda self: hasattr(self, "world"))
    @invariant()
    def job_never_goes_back(self):
        """For the want of a server: what is left of it without any worker nobody can tell."""
        assert not any(GONE_BACK.search(line) for line in self.world.logs), self.world.describe()

    @rule(index=PICK, workers=st.integers(1, 3), servers=st.integers(2, 4), answers=st.integers(0, 30))
    def kill_server_in_a_plan(self, index, workers, servers, answers):
        """Wherever the plan has come to when so many messages have been heard."""
        if not self.may_lose_a_server():
            return
        self.world.ask(ev.ScaleAsked, workers, servers)
        self.world.launcher()
        for _ in range(answers):
            self.hear(index, 1)
            self.speak(index + 1, 1)
            self.connect(index)
            self.train(index, 2)
        if self.may_lose_a_server():
            self.kill_server(index)

    def teardown(self):
        super().teardown()
        if hasattr(self, "world"):
            self.job_never_goes_back()


ReplicatedCluster.TestCase.settings = settings(
    max_examples=80, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
TestReplicatedCluster = ReplicatedCluster.TestCase
TestReplicatedCluster.pytestmark = [pytest.mark.slow]
