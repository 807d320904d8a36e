"""What becomes of requests: together in the next plan, replaced, cancelled; never silently."""

import pytest

from coordinator.core import events as ev
from coordinator.core.job import DurableJob, JobPhase
from coordinator.core.plans.plan import Phase, PlanKind
from coordinator.core.plans.scale_goal import ScaleGoal, ScaleRequest, uncontradicted
from coordinator.server.status_view import plans
from elastic_ps.core.configuration import Member, Role
from elastic_ps.core.model import Model, Tensor
from tests.coordinator.played_job import World, text

W1 = Member("w1", Role.WORKER, "h")


def numbers(world):
    """Requests that wait, and that are taken up."""
    job = world.state.job
    return [wish.number for wish in job.queued], [wish.number for wish in job.goal.wishes]


def plans_of(world, number):
    return [plan.phase for plan in world.records if number in plan.requests]


@pytest.mark.parametrize(
    ("older", "newer", "stays"),
    [
        (ScaleRequest(1, "", workers=4), ScaleRequest(2, "", workers=5), False),
        (ScaleRequest(1, "", workers=4, servers=2), ScaleRequest(2, "", servers=3), False),
        (ScaleRequest(1, "", workers=4), ScaleRequest(2, "", workers=4, servers=3), True),
        (ScaleRequest(1, "", workers=4), ScaleRequest(2, "", servers=3), True),
        (ScaleRequest(1, "", workers=4), ScaleRequest(2, "", drain=W1), True),
        (ScaleRequest(1, "", drain=W1), ScaleRequest(2, "", workers=4), True),
    ],
)
def test_a_request_takes_the_place_of_those_that_want_another_number(older, newer, stays):
    assert uncontradicted((older,), newer) == ((older, newer) if stays else (newer,))


def test_requests_are_granted_one_after_the_other():
    goal = ScaleGoal(2, 1).granting(
        [ScaleRequest(1, "a", workers=4), ScaleRequest(2, "b", drain=W1), ScaleRequest(3, "c", servers=3)],
        leavers=lambda goal: (),
    )
    assert (goal.workers, goal.servers, goal.drains, goal.cause) == (3, 3, {"w1"}, "c")
    assert [wish.number for wish in goal.wishes] == [1, 2, 3]
    assert str(goal.wishes[0]) == "scale to 4 workers (a)"
    assert str(goal.wishes[1]) == "drain w1 (b)"


def test_requests_that_agree_are_one_plan():
    world = World(2, 1)
    assert world.ask(ev.ScaleAsked, 3, 0).request == 1
    assert world.ask(ev.ScaleAsked, 0, 2).request == 2
    assert world.ask(ev.DrainAsked, "w0").request == 3
    assert world.ask(ev.DrainAsked, "w0").request == 3, "who asks again follows the same"
    assert numbers(world) == ([2, 3], [1])
    world.settle()
    assert world.counts == (2, 2)
    assert "w0" not in world.state.job.members
    assert [plan.requests for plan in world.records[1:]] == [(1,), (2, 3)]
    assert not world.state.job.withdrawn


def test_who_waits_for_a_replaced_request_is_told_at_once():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 0)
    world.ask(ev.ScaleAsked, 4, 0)
    world.ask(ev.ScaleAsked, 5, 0, cause="scheduler")
    assert world.state.job.withdrawn == {2: "replaced by: scale to 5 workers (scheduler)"}
    world.kill_coordinator()
    assert 2 in world.state.job.withdrawn
    world.settle()
    assert world.counts == (5, 1)
    assert plans_of(world, 2) == []


def test_a_cancel_is_of_the_plan_under_way_and_what_waits_is_next():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 4, 0)
    world.ask(ev.ScaleAsked, 0, 2)
    world.until(Phase.SYNCING)
    reply = world.ask(ev.CancelAsked)
    assert (reply.plan, reply.queued) == (2, "scale to 2 servers (operator)")
    world.settle()
    assert world.counts == (2, 2), "the cancelled wish does not come back with the queued one"
    assert plans_of(world, 1) == [Phase.CANCELLED]
    assert plans_of(world, 2) == [Phase.COMMITTED]


def test_a_plan_that_cannot_be_takes_nothing_queued_with_it():
    world = World(1, 1)
    world.replace_dead = False
    world.ask(ev.ScaleAsked, 2, 0)
    world.ask(ev.ScaleAsked, 0, 2)
    while world.plan.id == 2:  # until its time is up
        world.turn()
    world.spawn(Role.SERVER)
    world.settle()
    assert world.counts == (1, 2)
    assert plans_of(world, 1) == [Phase.CANCELLED]
    assert plans_of(world, 2)[-1] == Phase.COMMITTED


def test_a_wish_whose_plan_failed_gives_way_to_one_that_waited():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 0)
    world.until(Phase.SYNCING)
    world.ask(ev.ScaleAsked, 4, 0)
    joiner = next(node for node in world.alive if node.id in world.plan.joiners)
    world.kill(joiner)
    world.launcher()
    assert world.state.job.withdrawn == {1: "replaced by: scale to 4 workers (operator)"}
    assert numbers(world) == ([], [2])
    world.settle()
    assert world.counts == (4, 1)


def test_a_wish_is_wanted_until_a_plan_fulfils_it():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 2)
    world.until(Phase.SYNCING)
    world.kill(world.node("w1"))
    world.launcher()
    assert numbers(world) == ([], [1]), "a death has cancelled its plan"
    world.settle()
    assert plans_of(world, 1) == [Phase.CANCELLED, Phase.COMMITTED]
    assert numbers(world) == ([], [])


@pytest.mark.parametrize(
    ("event", "asked", "dies"),
    [(ev.DrainAsked, ("w2",), "w2"), (ev.ScaleAsked, (2, 0), "w2"), (ev.ScaleAsked, (2, 0), "w0")],
    ids=["drained", "leaves", "stays"],
)
def test_a_request_that_a_death_fulfils_is_done(event, asked, dies):
    """Its plan was cancelled, and none came behind: who waited for it was told that it had come to nothing."""
    world = World(3, 1)
    world.ask(event, *asked)
    world.until(Phase.ASSIGNED)
    world.kill(world.node(dies))
    world.settle()
    assert world.counts == (2, 1)
    assert plans_of(world, 1) == [Phase.CANCELLED, Phase.COMMITTED]
    assert [plan.kind for plan in world.records][-1] is PlanKind.DEATH
    assert numbers(world) == ([], [])


def test_a_death_fulfils_no_more_of_what_was_asked_for_than_it_does():
    """Servers are asked for, too; and who dies is not who was to go."""
    world = World(3, 1)
    world.ask(ev.ScaleAsked, 2, 2)
    world.until(Phase.ASSIGNED)
    world.ask(ev.DrainAsked, "w2")
    world.kill(world.node("w0"))
    world.launcher()
    assert world.plan.kind is PlanKind.DEATH
    assert not world.plan.requests
    world.settle()
    assert world.counts == (2, 2)
    assert "w2" not in world.state.job.members
    assert [plans_of(world, number)[-1] for number in (1, 2)] == [Phase.COMMITTED, Phase.COMMITTED]


def test_a_request_for_what_is_by_then_makes_no_plan():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 0)
    world.ask(ev.ScaleAsked, 3, 1)
    world.settle()
    assert plans_of(world, 2) == []
    assert numbers(world) == ([], [])


def test_what_is_refused_counts_what_waits():
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 0, 2)
    world.ask(ev.DrainAsked, "w0")
    assert "the model has only 36 blocks" in text(world.ask(ev.ScaleAsked, 0, 100))
    world.ask(ev.ScaleAsked, 2, 0)
    world.ask(ev.DrainAsked, "w1")
    world.settle()
    assert world.counts == (1, 2)
    assert not {"w0", "w1"} & set(world.state.job.members)


@pytest.mark.parametrize(("name", "workers"), [("w2", 2), ("w1", 1)])
def test_who_is_drained_and_goes_by_a_count_that_waits_too_counts_once(name, workers):
    """As where the plan for that count is under way already."""
    world = World(3, 1)
    world.ask(ev.ScaleAsked, 0, 2)
    world.ask(ev.ScaleAsked, 2, 0)
    world.ask(ev.DrainAsked, name)
    assert numbers(world) == ([2, 3], [1])
    world.settle()
    assert world.counts == (workers, 2)
    assert name not in world.state.job.members


# ---- the last of a role ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "event"), [("s0", ev.DrainAsked), ("w0", ev.DrainAsked), ("s0", ev.LeaveAsked)])
def test_the_last_of_its_role_goes_when_another_has_what_it_had(name, event):
    world = World(1, 1)
    role = world.node(name).role
    world.ask(event, name, *([role] if event is ev.LeaveAsked else []))
    assert name in world.state.job.members
    assert (world.wanted.starting_workers, world.wanted.starting_servers) == ((1, 0) if name == "w0" else (0, 1))
    world.until(Phase.SYNCING)
    assert world.plan.leavers == (name,)
    assert name in world.state.job.members, "it stays until another has its blocks"
    before = world.node(name).version
    world.settle()
    assert world.counts == (1, 1)
    assert name not in world.state.job.members
    assert min(node.version for node in world.alive) >= before
    assert [plan.phase for plan in world.records[1:]] == [Phase.COMMITTED], "one plan"


def test_all_of_a_role_may_be_asked_to_go_at_once():
    """As when their machine is emptied."""
    world = World(2, 2)
    for name in ("s0", "s1", "w1", "w0"):
        world.ask(ev.LeaveAsked, name, world.node(name).role)
    world.settle()
    assert world.counts == (1, 1)
    assert not {"s0", "s1", "w0", "w1"} & set(world.state.job.members)
    assert world.state.job.phase is JobPhase.RUNNING


def test_where_nobody_comes_in_its_place_the_last_one_stays_and_may_ask_again():
    world = World(1, 1)
    world.replace_dead = False
    world.ask(ev.LeaveAsked, "s0", Role.SERVER)
    for _ in range(400):
        world.turn()
        if world.plan is None:
            break
    assert world.records[-1].phase is Phase.CANCELLED
    assert "not registered within 30 s: 1 server" in world.records[-1].reason
    assert world.counts == (1, 1)
    assert "s0" in world.state.job.members
    world.replace_dead = True
    world.ask(ev.LeaveAsked, "s0", Role.SERVER)
    world.settle()
    assert "s0" not in world.state.job.members


def test_a_start_that_cannot_be_fails_the_job_with_the_reason():
    world = World(1, 2, declare=False)
    world.replace_dead = False
    restored = DurableJob(
        ScaleGoal(1, 3), model=Model((Tensor(0, "i:0", (4,), "float32"),), 64), restore="/ck/version-1"
    )
    world.state = type(world.state)(world.state.settings, restored)
    world.post(ev.Started(world.now))
    assert world.state.job.phase is JobPhase.FAILED
    assert world.state.job.reason.startswith("3 servers, but the model has only 1 block")
    assert "start with fewer servers" in world.state.job.reason


def test_a_request_that_waited_for_a_restore_asks_for_no_more_servers_than_blocks():
    """It came when the job, begun before anybody knew how few blocks it has, had as many servers."""
    world = World(1, 2, declare=False)
    restored = DurableJob(
        ScaleGoal(1, 2),
        model=Model((Tensor(0, "i:0", (32,), "float32"),), 64),
        restore="/ck/version-1",
        queued=(ScaleRequest(1, "operator", workers=2, servers=3),),
    )
    world.state = type(world.state)(world.state.settings, restored)
    world.post(ev.Started(world.now))
    assert world.state.job.phase is not JobPhase.FAILED
    assert (world.state.job.goal.workers, world.state.job.goal.servers) == (2, 2)


def test_a_request_that_waits_is_not_queued_again_by_who_asks_for_the_same():
    """As an operator on Kubernetes does, for as long as the plan under way lasts: it sees what is wanted until then."""
    world = World(2, 1)
    world.ask(ev.ScaleAsked, 3, 0)
    first = world.ask(ev.ScaleAsked, 4, 1)
    for _ in range(3):
        again = world.ask(ev.ScaleAsked, 4, 1)
        assert (again.queued, again.request) == (True, first.request)
    assert numbers(world)[0] == [2]
    world.ask(ev.DrainAsked, "w1")
    assert world.ask(ev.ScaleAsked, 4, 1).request == 4, "else the drain would leave one worker less"
    world.settle()
    assert world.counts == (4, 1)


def test_operators_read_the_plans_of_one_request_or_the_last_ones():
    world = World(1, 1)
    second = world.ask(ev.ScaleAsked, 2, 0).request
    world.settle()
    world.ask(ev.ScaleAsked, 2, 2)

    def ids(**chosen):
        return [plan.id for plan in plans(world.state, **chosen).plans]

    assert ids() == [1, 2, 3]
    assert ids(request=second) == [2]
    assert ids(request=second + 1) == [3], "the one under way"
    assert ids(latest=2) == [2, 3]
