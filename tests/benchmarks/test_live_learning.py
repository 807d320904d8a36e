"""The simulated cluster that `benchmarks.live_learning` serves, and its goals where the world changes."""

import pytest

from benchmarks.support.changed_worlds import ChangingWorld, changed_goals
from benchmarks.support.served_simulation import SLOT, Sequences
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.learning.lessons import Lessons
from dl2_scheduler.sim.trace import parse_cluster
from tests.dl2_scheduler.learning.test_live_learning import NODES, ONE, SPEEDS


def one_job(epochs=1.0):
    return [Job(1, 0.0, "a", epochs, 1.0, ONE, ONE, max_workers=4, max_servers=4)]


def test_sequences_look_like_one_cluster_that_runs_on():
    cluster = Sequences([one_job(), one_job(), one_job(1e9)], NODES, SPEEDS, slot=170)
    seen = []
    for _ in range(3):
        (state,) = cluster.snapshot().jobs
        seen.append((state.job.id, state.job.arrival / SLOT))
        cluster.apply(Allocation({state.job.id: Grant(1, 1)}))
        (done,) = cluster.finish_slot().jobs
        assert done.id == state.job.id
    assert seen == [("170-0-1", 170.0), ("170-1-1", 171.0), ("170-2-1", 172.0)]
    assert len(cluster.ended) == 2
    assert not cluster.done


def rows(above_planner, above_drf=()):
    drf = [*above_drf, *[0.0] * len(above_planner)]
    return [
        {"change": "mix", "slots since": slot, "above planner %": planner, "above DRF %": above}
        for slot, (planner, above) in enumerate(zip(above_planner, drf, strict=False))
    ]


@pytest.mark.parametrize(
    ("found", "met"),
    [
        (rows([9.0] * 30 + [5.0] * 10), [True, True]),
        (rows([9.0] * 31 + [5.0] * 10), [False, True]),
        (rows([5.0] * 46, [0.0] + [11.0] * 5 + [9.0] + [11.0] * 5), [True, True]),
        (rows([5.0] * 46, [0.0] + [11.0] * 6), [True, False]),
    ],
)
def test_goals_of_a_change(found, met):
    assert [goal.met for goal in changed_goals(0, found)] == met


def test_a_changed_world_differs_in_one_thing():
    speeds = Speeds({"seq2seq": SPEEDS.grid("a"), "dssm": SPEEDS.grid("b")})
    world = ChangingWorld(parse_cluster("24x8cpu,8gpu"), speeds, Lessons((NODES,)))
    nodes, mix, slow = (world.changed(how) for how in ("nodes", "mix", "slow"))
    assert len(nodes.nodes) == 12
    assert nodes.lessons == slow.lessons == world.lessons
    assert {job.model for episode in mix.lessons.episodes(0, 1) for job in episode.jobs} == set(mix.lessons.models)
    assert slow.speeds.of("seq2seq", 2, 2) == speeds.of("seq2seq", 2, 2) / 2
    assert slow.speeds.of("dssm", 2, 2) == speeds.of("dssm", 2, 2)
