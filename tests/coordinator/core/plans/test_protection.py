"""What is protected, and the plan in the background that protects the rest."""

from dataclasses import replace

from coordinator.core import events as ev
from coordinator.core.plans.next_configuration import grown_followers
from coordinator.core.plans.plan import Phase
from coordinator.core.plans.protection import RETRY_SECONDS, Protection, protection
from elastic_ps.core.configuration import Role
from tests.coordinator.played_job import World


def protecting(**settings):
    """A job that has lost a server and is about to make followers again."""
    world = World(2, 3, replicas=1, **settings)
    world.replace_dead = False
    for _ in range(4):
        world.turn()
    world.kill(world.node("s1"))
    for _ in range(20):
        world.launcher()
        for node in list(world.alive):
            for queue, act in ((node.inbox, world.hear), (node.outbox, world.speak)):
                while queue and not (world.plan and world.plan.background):
                    act(node)
        if world.plan and world.plan.background:
            return world
        world.tick()
    raise AssertionError(world.describe())


def test_protection_is_what_living_servers_follow():
    world = World(2, 3, replicas=1)
    job = world.state.job
    found = protection(job)
    assert found.blocks == found.all_blocks == len(job.model.blocks)
    assert found.nbytes == found.all_nbytes == sum(block.nbytes for block in job.model.blocks)
    without = replace(job, nodes={name: node for name, node in job.nodes.items() if name != "s0"})
    named = zip(job.configuration.assignment, job.configuration.followers, strict=True)
    assert protection(without).blocks == sum("s0" not in _names(job, pair) for pair in named)


def _names(job, pair):
    return {job.configuration.servers[index].id for index in pair}


def test_job_without_replicas_has_nothing_protected():
    assert protection(World(2, 3).state.job).blocks == 0
    assert protection(World(2, 3, declare=False).state.job) == Protection(0, 0, 0, 0)


def test_target_counts_when_it_is_committed():
    world = protecting()
    before = protection(world.state.job)
    assert before.blocks < before.all_blocks
    world.until(Phase.ARMED)
    assert protection(world.state.job) == before
    for _ in range(6):
        world.turn()
    after = protection(world.state.job)
    assert after.blocks == after.all_blocks
    assert world.records[-1].background is True or any(plan.background for plan in world.records)


def test_operator_may_cancel_it_for_a_while():
    world = protecting()
    servers = world.state.job.goal.servers
    world.ask(ev.CancelAsked)
    assert world.state.job.goal.servers == servers, "another server is still wanted"
    assert world.plan is None or not world.plan.background
    world.turn()
    assert world.plan is None or not world.plan.background
    for _ in range(int(RETRY_SECONDS * 2) + 80):
        world.turn()
    assert protection(world.state.job).blocks == len(world.state.job.model.blocks)


def test_node_that_does_not_answer_is_no_reason_to_want_fewer_servers():
    world = protecting()
    servers = world.state.job.goal.servers
    world.node("w0").inbox.clear()
    for _ in range(100):
        world.tick()
        for node in world.alive:
            world.report(node)
        if not (world.plan and world.plan.background):
            break
    assert world.state.job.goal.servers == servers
    assert world.node("w0") is not None


def test_new_blocks_get_followers_and_known_ones_keep_what_they_have():
    job = World(2, 3, replicas=1).state.job
    known = len(job.configuration.assignment) - 4
    old = replace(
        job.configuration,
        assignment=job.configuration.assignment[:known],
        followers=(*job.configuration.followers[: known - 1], -1),
    )
    followers = grown_followers(replace(job, configuration=old), job.configuration.assignment, 1)
    assert followers[:known] == old.followers
    assert all(follower >= 0 for follower in followers[known:])
    assert grown_followers(replace(job, configuration=old), job.configuration.assignment, 0)[known:] == (-1,) * 4
    assert grown_followers(replace(job, configuration=replace(old, followers=())), old.assignment, 0) == ()


def restarted(world, replicas):
    """The coordinator is started again with another number of replicas."""
    world.state = replace(world.state, settings=replace(world.state.settings, replicas=replicas))
    world.kill_coordinator()
    world.settle()


def test_coordinator_that_is_started_again_with_replicas_makes_followers():
    world = World(2, 3)
    restarted(world, 1)
    for _ in range(20):
        world.turn()
    assert protection(world.state.job).blocks == len(world.state.job.model.blocks)


def test_coordinator_that_is_started_again_without_replicas_drops_followers_with_the_next_plan():
    world = World(2, 3, replicas=1)
    restarted(world, 0)
    assert world.state.job.configuration.followers
    world.ask(ev.ScaleAsked, 3, 3)
    for _ in range(20):
        world.turn()
    assert len(world.state.job.configuration.workers) == 3
    assert not world.state.job.configuration.followers


def alone():
    """A job that has lost one of its two servers, and no other comes in time."""
    world = World(2, 2, replicas=1)
    world.settle()
    world.replace_dead = False
    world.kill(world.node("s1"))
    for _ in range(20):
        world.turn()
    world.silence(seconds=31)
    return world


def test_a_job_goes_on_to_want_the_server_without_which_nobody_follows():
    world = alone()
    assert world.counts == (2, 1)
    assert world.wanted.starting_servers == 1
    assert any("no other server can follow" in line for line in world.logs)
    world.silence(seconds=31)
    world.spawn(Role.SERVER)
    world.settle()
    found = protection(world.state.job)
    assert found.blocks == found.all_blocks


def test_a_request_does_not_wait_for_the_server_that_lacks():
    world = alone()
    world.ask(ev.ScaleAsked, 1, 0)
    world.silence(seconds=31)
    world.turn()
    assert world.plan.requests
    world.silence(seconds=31)
    for _ in range(20):
        world.turn()
    assert world.counts == (1, 1)
    assert world.wanted.starting_servers == 1


def test_a_job_that_begins_with_one_server_goes_on_to_want_the_other():
    world = World(1, 2, replicas=1, declare=False)
    world.replace_dead = False
    for role in (Role.WORKER, Role.SERVER):
        world.spawn(role)
    world.silence(seconds=31)
    for _ in range(20):
        world.turn()
    assert world.counts == (1, 1)
    assert world.wanted.starting_servers == 1


def test_who_cancels_the_plan_wants_the_server_no_more():
    world = alone()
    world.ask(ev.CancelAsked)
    world.settle()
    assert world.counts == (2, 1)
    assert not world.wanted.starting_servers
