"""Faults of a replicated job that overlap: it goes on and is protected again, or ends with a reason; it never hangs."""

import random

import pytest

from coordinator.core import events as ev
from coordinator.core.plans.plan import MigrationMode
from coordinator.core.plans.protection import protection
from elastic_ps.core.configuration import Role
from tests.coordinator.played_job import ASYNC, DATA, SSP, World
from tests.sweeps import sweep

REASONS = ("the last worker died", "no worker answered", "did not answer", "nobody has", "book of this job's batches")


class Storm:
    """Faults and requests in a random order, with answers between them."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        data = self.random.choice([DATA, DATA, ASYNC, SSP])
        workers, servers = self.random.randint(1, 3), self.random.randint(2, 4)
        self.world = World(workers, servers, data=data, replicas=1, lease=3.0)
        for _ in range(4):
            self.world.turn()

    def kill(self):
        self.world.kill(self.random.choice(self.world.alive))

    def kill_server(self):
        servers = [node for node in self.world.alive if node.role is Role.SERVER]
        if servers:
            self.world.kill(self.random.choice(servers))

    def freeze(self):
        self.random.choice(self.world.alive).frozen = True

    def thaw(self):
        for node in self.world.frozen:
            node.frozen = node.connected = False

    def scale(self):
        mode = self.random.choice(list(MigrationMode))
        counts = self.random.randint(1, 3), self.random.randint(1, 4)
        self.world.ask(ev.ScaleAsked, *counts, migration=mode)

    def drain(self):
        if self.world.state.job.members:
            self.world.ask(ev.DrainAsked, self.random.choice(sorted(self.world.state.job.members)))

    def kill_coordinator(self):
        self.world.kill_coordinator()

    def lose_journal(self):
        if self.random.random() < 0.5:
            self.world.exits.clear()
        self.world.lose_journal()

    def blow(self):
        faults = [self.kill, self.kill_server, self.kill_server, self.freeze, self.thaw]
        faults += [self.scale, self.drain, self.kill_coordinator, self.lose_journal]
        for _ in range(self.random.randint(1, 4)):
            if self.world.state.job.ended or not self.world.alive:
                return
            self.random.choice(faults)()
            self.advance(self.random.choice([0, 3, 10, 30, 80]))

    def advance(self, times):
        """Somebody hears or says something, again and again."""
        world, pick = self.world, self.random
        for _ in range(times):
            world.launcher()
            for node in world.alive:
                if not node.connected and pick.random() < 0.5:
                    world.listen(node)
            busy = [node for node in world.alive if node.inbox or node.outbox]
            if not busy:
                (world.turn if pick.random() < 0.5 else world.tick)()
                continue
            node = pick.choice(busy)
            (world.hear if node.inbox and (not node.outbox or pick.random() < 0.5) else world.speak)(node)
            if pick.random() < 0.1:
                node.hand_over()

    def check(self):
        world = self.world
        self.thaw()
        world.settle(400)
        found = protection(world.state.job)
        for _ in range(80):
            if world.state.job.ended or found.blocks == found.all_blocks or world.counts[1] == 1:
                break
            world.turn()
            found = protection(world.state.job)
        if world.state.job.ended:
            reason = world.state.job.reason
            assert reason.startswith("server s") or any(known in reason for known in REASONS), reason
            return
        assert found.blocks == found.all_blocks or world.counts[1] == 1, f"never protected: {world.describe()}"
        before = max(node.version for node in world.alive)
        for _ in range(8):
            world.turn()
        assert max(node.version for node in world.alive) > before, f"no steps: {world.describe()}"


@pytest.mark.parametrize("decade", sweep(range(8)))
def test_job_goes_on_or_ends_with_a_reason(decade):
    for seed in range(10 * decade, 10 * (decade + 1)):
        storm = Storm(seed)
        try:
            storm.blow()
            storm.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
