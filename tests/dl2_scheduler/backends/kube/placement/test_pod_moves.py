"""Tasks of ElasticJobs that move: whose pod is deleted, where the next one goes, and what stays as it is."""

import pytest

from dl2_scheduler.backends.kube.apiserver.paced_writes import PacedWriter
from dl2_scheduler.backends.kube.placement.binder import Binder
from dl2_scheduler.backends.kube.placement.moves import PodMover
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.placement.guarded_placement import GuardedPlacement
from dl2_scheduler.cluster.placement.task_mover import TaskMover
from dl2_scheduler.cluster.placement.task_moves import MoveCost
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from dl2_scheduler.policies.placement.registry import NamedPlacement, spread_placement
from dl2_scheduler.policies.placement.speed_model import SpeedModel
from tests.dl2_scheduler.backends.local.test_local_moves import AllOnTheFirst
from tests.dl2_scheduler.kube_objects import NOW, gang, job, node, pod
from tests.dl2_scheduler.played_kube import JOBS, PlayedApi, PlayedView
from tests.dl2_scheduler.policies.placement.test_moving import Crowd

PODS = "/api/v1/namespaces/default/pods"
RUNNING = {"phase": "Running", "workers": 1, "servers": 1, "samplesPerEpoch": 1000, "samplesPerSecond": 1.0, "epoch": 1}
GRANTS = Allocation(dict.fromkeys(("one", "two"), Grant(1, 1, "as asked")))
COST = MoveCost(0.2, 10.0, " (a task joins in 10 s here, the mean of 3)")


class World:
    """Two jobs whose tasks are all on node a, and a node b."""

    def __init__(self, **second):
        self.api, self.time = PlayedApi(), NOW + 100
        self.api.add("/api/v1/nodes", node("a", cpu="8"), node("b", cpu="8"))
        self.run("one", "a")
        self.run("two", "a", **second)
        self.view = PlayedView(self.api)
        self.writer = PacedWriter(self.api, lambda: True)
        named = NamedPlacement("crowd", AllOnTheFirst(), SpeedModel(("digits",), speeds=Crowd()))
        self.policy = GuardedPlacement(named, spread_placement())
        self.binder = Binder(self.view, self.writer, NodeRule.SPREAD, now=lambda: self.time, policy=self.policy)
        self.scaled = {"one", "two"}

    def run(self, name, node, **spec):
        self.api.add(JOBS.format("default"), job(name, **spec) | {"status": RUNNING})
        names = ("coordinator", "server-0", "worker-0")
        self.api.add(PODS, *gang(name, nodes={f"{name}-{each}": node for each in names}))

    def mover(self, most=2, cost=COST):
        asked = TaskMover(self.policy, most, lambda: cost)
        return PodMover(self.view, self.writer, asked, self.binder.expected, lambda: self.scaled)

    def move(self):
        """Have one task moved; return what is expected."""
        self.mover(most=1).settle(GRANTS)
        (moved,) = self.binder.expected.all()
        assert moved.node == "b"
        return moved

    def pods(self):
        return {found.name: found.node for found in self.view.pods() if found.role != "coordinator"}

    def status(self, name, **changes):
        path = f"{JOBS.format('default')}/{name}"
        self.api.put(path, self.api.objects[path] | {"status": RUNNING | changes})


@pytest.fixture
def world():
    made = World()
    yield made
    made.binder.stop()


def test_pods_leave_here_and_their_next_ones_join_there(world):
    settled = world.mover().settle(GRANTS)
    (moved,) = [name for name, grant in settled.grants.items() if "move" in grant.reason]
    (other,) = {"one", "two"} - {moved}
    assert settled.of(moved).reason == (
        f"as asked; 2 tasks move from a to b: its steps 67% shorter, those of {other} 67% shorter for about 11 h; "
        "the move costs 0.2 s of its training (a task joins in 10 s here, the mean of 3)"
    )
    assert settled.of(other).reason == "as asked"
    assert world.pods() == {f"{other}-server-0": "a", f"{other}-worker-0": "a"}
    world.api.add(PODS, *(pod(f"{moved}-{role}-1", job=moved, role=role, gang="1,1") for role in ("worker", "server")))
    world.binder.step()
    assert {world.pods()[f"{moved}-{role}-1"] for role in ("worker", "server")} == {"b"}  # the policy would say a
    assert world.binder.why_placed(("default", moved)) == "b, where it was moved to"
    assert world.binder.expected.all() == ()


def test_an_expected_pod_goes_elsewhere_where_its_node_is_full(world):
    """Somebody binds past this scheduler."""
    moved = world.move()
    world.api.add(PODS, pod("web", cpu="8", node="b"))
    world.api.add(PODS, pod("next", job=moved.job[1], role=moved.role, gang="1,1"))
    world.binder.step()
    assert world.pods()["next"] == "a"
    assert world.binder.why_placed(moved.job).startswith("a: +200% slowdown")  # the policy was asked again
    assert world.binder.expected.all() == ()


def test_the_room_at_the_target_is_kept_while_the_pod_drains(world):
    """Node b has 8 cores, of which 7 may be had, one of them in part by the coordinator of another job."""
    moved = world.move()
    world.api.add(PODS, *(pod(f"web-{number}", created=number / 100) for number in range(17)))
    world.api.add(PODS, *gang("three", created=-50))
    world.api.add(JOBS.format("default"), job("three", created=-50))
    world.binder.step()
    assert sum(found.requests["cpu"] for found in world.view.pods() if found.node == "b") == pytest.approx(6.1)
    world.api.add(PODS, pod("next", job=moved.job[1], role=moved.role, gang="1,1"))
    world.binder.step()
    assert world.pods()["next"] == "b"


def test_a_move_keeps_its_target_where_another_task_of_the_job_is_missing_too(world):
    moved = world.move()
    other = {"worker": "server", "server": "worker"}[moved.role]
    world.api.drop(f"{PODS}/{moved.job[1]}-{other}-0")  # its node took it
    made = [pod(f"new-{role}", job=moved.job[1], role=role, gang="1,1") for role in (other, moved.role)]
    world.api.add(PODS, *made)
    world.binder.step()
    assert world.pods()[f"new-{moved.role}"] == "b"
    assert world.pods()[f"new-{other}"] == "a"  # as the policy says
    assert world.binder.why_placed(moved.job) == (
        "b, where it was moved to; a: +200% slowdown beside digits; b: +0% slowdown"
    )


@pytest.mark.parametrize("taken", [6, 7])
def test_no_other_task_moves_to_room_that_is_kept(world, taken):
    """Beside the one that moves there node b has room for another task, or not."""
    world.move()
    world.api.add("/api/v1/nodes", node("c", cpu="8"))
    for name in ("three", "four"):
        world.run(name, "c")
    world.api.add(PODS, pod("web", cpu=str(taken), node="b"))
    world.scaled = {"three"}
    grants = Allocation({**GRANTS.grants, **dict.fromkeys(("three", "four"), Grant(1, 1))})
    assert ("moves from c to b" in world.mover(most=1).settle(grants).of("three").reason) is (taken == 6)


def test_room_is_not_kept_for_a_task_that_the_job_is_not_to_have_any_more(world):
    moved = world.move()
    path = f"{JOBS.format('default')}/{moved.job[1]}"
    found = world.api.objects[path]
    world.api.put(path, found | {"spec": found["spec"] | {"suspend": True}})
    world.api.add(PODS, pod("web", cpu="8"))
    world.binder.step()
    assert world.pods()["web"] == "b"


def test_room_is_not_kept_for_a_later_job_of_the_same_name(world):
    moved = world.move()
    name = moved.job[1]
    for path in [path for path in world.api.objects if path.partition(f"/{name}")[1]]:
        world.api.drop(path)
    world.api.add(JOBS.format("default"), job(name))
    world.api.add(PODS, *gang(name))
    world.binder.step()
    assert world.pods()[f"{name}-{moved.role}-0"]
    assert "where it was moved to" not in world.binder.why_placed(moved.job)


@pytest.mark.parametrize("later", [301, -3600])
def test_room_that_nobody_comes_for_is_given_up_and_the_job_says_so(world, later):
    """So it is where the clock is set back: nobody waits until it is there again."""
    moved = world.move()
    world.api.add(PODS, pod("web", cpu="8"))
    assert world.binder.step() <= 300.0
    assert world.pods()["web"] == ""
    world.time += later
    world.binder.step()
    assert world.pods()["web"] == "b"
    why = f"the room on b that was kept for its {moved.role} is free again: none came within 5 min"
    assert world.binder.why_placed(moved.job) == why
    assert [body["reason"] for verb, path, body in world.api.calls if verb == "create" and "events" in path][-1] == (
        "MoveGivenUp"
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda world: world.scaled.clear(),  # nobody knows whether their workers may come and go
        lambda world: world.status("two", phase="Starting"),
        lambda world: world.status("two", workers=0),
        lambda world: world.api.add(PODS, pod("two-worker-1", job="two", role="worker")),
        lambda world: world.api.add(PODS, pod("web", cpu="8", node="b")),
    ],
)
def test_nothing_moves(world, change):
    change(world)
    before = world.pods()
    assert world.mover().settle(GRANTS) == GRANTS
    assert world.pods() == before


def test_nothing_moves_while_no_cost_is_known_or_a_job_is_given_more(world):
    before = world.pods()
    assert world.mover(cost=None).settle(GRANTS) == GRANTS
    more = Allocation({**GRANTS.grants, "two": Grant(2, 1)})
    assert world.mover().settle(more) == more
    assert world.pods() == before


def test_pods_that_ask_about_others_stay():
    spec = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"dl2.scheduler/job": "two"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [spec]}}
    world = World()
    for path, found in list(world.api.objects.items()):
        if "/pods/" in path:
            world.api.put(path, found | {"spec": found["spec"] | {"affinity": affinity}})
    assert world.mover().settle(GRANTS) == GRANTS
    world.binder.stop()


def test_a_mover_that_fails_keeps_no_slot(world, caplog):
    world.view.nodes = lambda: 1 / 0
    assert world.mover().settle(GRANTS) == GRANTS
    assert "nothing is moved" in caplog.text
