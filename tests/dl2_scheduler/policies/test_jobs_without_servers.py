"""Policies give jobs without servers workers and nothing else, and the others what they gave before."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.snapshot import Grant, SpeedReport
from dl2_scheduler.learning.networks import new_policy
from dl2_scheduler.learning.teacher import PolicyTeacher, of_counts
from dl2_scheduler.policies.learnt.actions import ACTIONS, BOTH, SERVER, STOP, WORKER
from dl2_scheduler.policies.learnt.dl2 import Dl2
from dl2_scheduler.policies.learnt.features import features, of_room, width
from dl2_scheduler.policies.learnt.fill import filled
from dl2_scheduler.policies.learnt.weights import share_of
from dl2_scheduler.policies.registry import POLICY_NAMES, make_policy, rule_of
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.policies.rules.speed_fit import FittedSpeeds
from dl2_scheduler.sim.simulator import SimulatedCluster, run
from tests.dl2_scheduler.clusters import MIXED, counts, given, job, nodes, serverless, snapshot, snapshots
from tests.dl2_scheduler.policies.test_policies import decide
from tests.sweeps import examples

pytestmark = pytest.mark.timeout(300)

ROOM = nodes({"cpu": 8}, {"cpu": 4})
PUBLISHED = [name for name in POLICY_NAMES if name.startswith("published-")]
OURS = [name for name in POLICY_NAMES if name not in PUBLISHED]


@pytest.mark.parametrize("name", OURS)
def test_beside_a_job_with_servers_it_gets_workers_only(name: str) -> None:
    found = decide(make_policy(name, MIXED), snapshot([job(1), serverless(2)], ROOM), NodeRule.SPREAD)
    assert min(found[1]) >= 1
    assert found[2][0] >= 1
    assert found[2][1] == 0


@pytest.mark.parametrize("name", OURS)
def test_alone_it_gets_no_more_than_it_can_use_and_its_minimum_or_nothing(name: str) -> None:
    policy = make_policy(name, MIXED)
    assert decide(policy, snapshot([serverless(max_workers=3)], ROOM), NodeRule.SPREAD) == {1: (3, 0)}
    gang = serverless(min_workers=4)
    assert decide(policy, snapshot([gang], nodes({"cpu": 3})), NodeRule.SPREAD) == {1: (0, 0)}
    assert decide(policy, snapshot([gang], nodes({"cpu": 4})), NodeRule.SPREAD) == {1: (4, 0)}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_rules_refuse_it(name: str) -> None:
    with pytest.raises(BadInput, match="job 2 has no servers; published rules and the paper's network"):
        decide(make_policy(name, MIXED), snapshot([job(1), serverless(2)], ROOM), rule_of(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS)
@settings(deadline=None, max_examples=examples(10))
@drawn(data=st.data())
def test_the_contract_holds_for_mixes(name: str, data: st.DataObject) -> None:
    first, second = make_policy(name, MIXED), make_policy(name, MIXED)
    for now in data.draw(st.lists(snapshots(gangs=True, mixed=True), min_size=1, max_size=3)):
        assert decide(first, now, NodeRule.SPREAD) == decide(second, now, NodeRule.SPREAD)


def test_drf_fills_by_dominant_share_with_single_workers() -> None:
    """8 cpu, of which a bundle of a takes 2 and a worker of b takes 1; in turn a, b, b, a, b, b."""
    jobs = [job("a", max_workers=9, max_servers=9), serverless("b", max_workers=9)]
    assert given(Drf(), snapshot(jobs, nodes({"cpu": 8}))) == {"a": (2, 2), "b": (4, 0)}


@pytest.mark.parametrize("name", [name for name in OURS if not name.endswith("-true")])
def test_mixes_end_in_a_simulation(name: str) -> None:
    jobs = [job(1), serverless(2), replace(serverless(3, min_workers=2), arrival=150.0), job(4, arrival=150.0)]
    times = run(SimulatedCluster(jobs, ROOM, MIXED, 100.0), make_policy(name, MIXED), NodeRule.SPREAD)
    assert np.isfinite(times).all()


# ---- fitted speeds ---------------------------------------------------------------------------------------------------


WIDE = serverless(max_workers=16)


def ring_speed(workers: int) -> float:
    """A step whose computing is shared, with a ring's bytes and messages."""
    return 100.0 / (1.0 / workers + 0.2 * (workers - 1) / workers + 0.01 * (workers - 1))


def reports(*workers: int) -> list[SpeedReport]:
    return [SpeedReport(1, "even", 0, each, ring_speed(each)) for each in workers]


def test_speeds_without_servers_are_one_row() -> None:
    found = FittedSpeeds().grid(WIDE)
    assert found.shape == (1, 17)
    assert found[0, 0] == 0
    assert (found[0, 1:] > 0).all()


def test_a_ring_is_recovered_from_four_counts() -> None:
    speeds = FittedSpeeds()
    speeds.observe(reports(1, 2, 6, 16))
    fitted = speeds.grid(WIDE)[0, 1:]
    assert fitted == pytest.approx([ring_speed(each) for each in range(1, 17)], rel=0.05)


def test_jobs_with_servers_and_without_are_fitted_apart() -> None:
    speeds, alone = FittedSpeeds(), FittedSpeeds()
    with_servers = [SpeedReport(1, "even", 1, 1, 7.0), SpeedReport(1, "even", 4, 4, 19.0)]
    alone.observe(with_servers)
    speeds.observe([*with_servers, *reports(1, 4)])
    wide = job(max_workers=16, max_servers=16)
    assert speeds.grid(wide) == pytest.approx(alone.grid(wide))
    assert speeds.grid(WIDE)[0, 4] == pytest.approx(ring_speed(4), rel=0.05)


def test_what_is_known_with_servers_says_how_large_the_model_is() -> None:
    small, large = FittedSpeeds(), FittedSpeeds()
    small.observe([SpeedReport(1, "even", 1, 1, 10.0)])
    large.observe([SpeedReport(1, "even", 1, 1, 1000.0)])
    assert large.grid(WIDE) == pytest.approx(100 * small.grid(WIDE))


@pytest.mark.parametrize("told", [[], reports(2, 5), [SpeedReport(1, "even", 2, 3, 10.0)]])
def test_drawn_speeds_are_finite_and_repeat(told: list[SpeedReport]) -> None:
    speeds = FittedSpeeds()
    speeds.observe(told)
    one, same = (speeds.drawn(WIDE, np.random.default_rng(3)) for _ in range(2))
    assert np.isfinite(one).all()
    assert (one[0, 1:] > 0).all()
    assert (one == same).all()
    for report in told:
        if not report.servers:
            assert one[0, report.workers] == pytest.approx(report.samples_per_second, rel=0.1)


# ---- the learnt policy -----------------------------------------------------------------------------------------------

MODELS = MIXED.models


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(30))
@drawn(now=snapshots(gangs=True, mixed=True), seed=st.integers(0, 3))
def test_the_learnt_policy_keeps_to_bounds(now, seed) -> None:  # type: ignore[no-untyped-def]
    room = FreeResources(now)
    found = counts(Dl2(new_policy(MODELS, seed).weights()).allocate(now, room))
    for state in now.jobs:
        (workers, servers), one = found[state.job.id], state.job
        assert (workers, servers) == (0, 0) or (
            one.min_workers <= workers <= one.max_workers and one.min_servers <= servers <= one.max_servers
        )


def kinds_of(actions: list[int]) -> list[tuple[int, int]]:
    return [(action // ACTIONS, action % ACTIONS) for action in actions if action != STOP]


def test_only_workers_are_offered_after_the_first_grant() -> None:
    now = snapshot([serverless(1), job(2)], ROOM)
    inputs, tasks = of_room(FreeResources(now), MODELS)
    scores = new_policy(MODELS, 0).weights().scores(features(inputs, len(MODELS)), share_of(inputs), 4)
    done = filled(tasks, scores._replace(stop=-100.0), np.array([[8.0, 0.0], [4.0, 0.0]]), 0)
    taken = kinds_of(done.actions.tolist())
    assert [kind for number, kind in taken if number == 0] == [BOTH, WORKER, WORKER, WORKER]
    assert done.counts[0].tolist() == [4, 0]
    assert BOTH in {kind for number, kind in taken if number == 1}


def test_a_teachers_grants_are_actions_that_are_allowed() -> None:
    now = snapshot([serverless(1, min_workers=2), serverless(2), job(3, min_servers=2)], ROOM)
    wanted = counts(make_policy("planner", MIXED).allocate(now, FreeResources(now)))
    actions = PolicyTeacher(make_policy("planner", MIXED))(now)
    for lacking in (0, 1):
        first, *others = [kind for number, kind in kinds_of(actions.tolist()) if number == lacking]
        assert (first, set(others)) == (BOTH, {WORKER})
    inputs, tasks = of_room(FreeResources(now), MODELS)
    scores = new_policy(MODELS, 0).weights().scores(features(inputs, len(MODELS)), share_of(inputs), 4)
    capacity = FreeResources(now).capacity
    done = filled(tasks, scores, capacity, 0, forced=np.append(actions, STOP))
    assert [tuple(each) for each in done.counts.tolist()] == list(wanted.values())
    grants = [Grant(*wanted[number]) for number in (1, 2, 3)]
    from_counts = of_counts(grants, FreeResources(now).least)
    assert SERVER not in {kind for number, kind in kinds_of(from_counts) if number < 2}


def test_what_the_network_sees_tells_that_there_are_no_servers() -> None:
    """It is in one number: -1, where others have 0 or more, so that networks of before decide about those as before."""

    def seen(one: Job) -> list[float]:
        inputs, _ = of_room(FreeResources(snapshot([one], ROOM)), MODELS)
        return features(inputs, len(MODELS))[0].tolist()

    lacks, has = seen(serverless()), seen(job())
    at = len(MODELS) + 4
    assert (lacks[at], has[at]) == (-1.0, 0.0)
    assert len(lacks) == width(len(MODELS))
    assert np.abs(lacks).max() < 20
