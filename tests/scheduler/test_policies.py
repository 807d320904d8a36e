"""What every policy keeps to, whatever its name."""

from pathlib import Path

import pytest
from clusters import NODES, SPEEDS, counts, job, nodes, snapshot, snapshots
from hypothesis import given, settings
from hypothesis import strategies as st
from test_room import check_books

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.policy import AllocationPolicy
from dl2_scheduler.cluster.room import NodeRule, Room
from dl2_scheduler.cluster.snapshot import Snapshot
from dl2_scheduler.policies.placement import placement_rule
from dl2_scheduler.policies.registry import POLICY_NAMES, make_policy, rule_of
from dl2_scheduler.sim.simulator import SimulatedCluster, run

pytestmark = pytest.mark.timeout(300)

every_policy = pytest.mark.parametrize("name", POLICY_NAMES)
PLACEMENTS = st.sampled_from([NodeRule.SPREAD, NodeRule.PACK, NodeRule.ROUND_ROBIN])


def decide(policy: AllocationPolicy, now: Snapshot, rule: NodeRule) -> dict[int | str, tuple[int, int]]:
    """What a policy decides, once all that the contract asks has been checked."""
    room = Room(now, rule)
    given = counts(policy.allocate(now, room))
    check_books(room)
    assert list(given) == [state.job.id for state in now.jobs]
    for number, state in enumerate(now.jobs):
        workers, servers = given[state.job.id]
        assert 0 <= workers <= min(state.job.max_workers, room.workers(number))
        assert 0 <= servers <= min(state.job.max_servers, room.servers(number))
        assert (workers > 0) == (servers > 0)
    return given


@every_policy
@settings(deadline=None, max_examples=25)
@given(data=st.data(), asked=PLACEMENTS)
def test_contract(name: str, data: st.DataObject, asked: NodeRule) -> None:
    machines = data.draw(NODES)
    slots = data.draw(st.lists(snapshots(machines), min_size=1, max_size=3))
    first, second = make_policy(name, SPEEDS), make_policy(name, SPEEDS)
    for now in slots:
        assert decide(first, now, rule_of(name, asked)) == decide(second, now, rule_of(name, asked))


@every_policy
def test_no_jobs(name: str) -> None:
    assert decide(make_policy(name, SPEEDS), snapshot([], nodes({"cpu": 8})), rule_of(name)) == {}


@every_policy
def test_a_job_alone_gets_something(name: str) -> None:
    now = snapshot([job(worker={"cpu": 2, "gpu": 1}, server={"cpu": 1})], nodes({"cpu": 4, "gpu": 2}, {"cpu": 4}))
    workers, servers = decide(make_policy(name, SPEEDS), now, rule_of(name))[1]
    assert workers
    assert servers


@every_policy
def test_a_job_that_fits_nowhere_gets_nothing(name: str) -> None:
    now = snapshot([job(worker={"cpu": 9}), job(2, server={"tpu": 1})], nodes({"cpu": 8}, {"cpu": 8}))
    assert decide(make_policy(name, SPEEDS), now, rule_of(name)) == {1: (0, 0), 2: (0, 0)}


@every_policy
def test_one_of_each_is_the_most_of_some_jobs(name: str) -> None:
    now = snapshot([job(max_workers=1, max_servers=1)], nodes({"cpu": 8}))
    assert decide(make_policy(name, SPEEDS), now, rule_of(name)) == {1: (1, 1)}


@every_policy
def test_every_job_ends(name: str) -> None:
    """Also one whose owner expected less, and models that do not run with some counts."""
    jobs = [
        job(
            number,
            model=SPEEDS.models[number % 3],
            arrival=30.0 * number,
            epochs=90.0 + number,
            epochs_estimate=estimate,
        )
        for number, estimate in enumerate([None, 20.0, 400.0, None, None, 50.0])
    ]
    cluster = SimulatedCluster(jobs, nodes({"cpu": 8}, {"cpu": 4}), SPEEDS, slot_seconds=20.0)
    times = run(cluster, make_policy(name, SPEEDS), rule_of(name), most_slots=300)
    assert (times > 0).all()


def test_policies_do_not_share_what_they_learn() -> None:
    first, second = make_policy("planner", SPEEDS), make_policy("planner", SPEEDS)
    assert first is not second
    assert first.speeds is not second.speeds  # type: ignore[attr-defined]


def test_an_unknown_policy_is_told_all_names() -> None:
    with pytest.raises(BadInput, match=r"unknown policy dfr: give one of drf, fifo, .*published-optimus, dl2:PATH$"):
        make_policy("dfr", SPEEDS)


def test_a_learnt_policy_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=str(tmp_path)):
        make_policy(f"dl2:{tmp_path}/none", SPEEDS)


def test_published_rules_have_their_own_placement() -> None:
    assert rule_of("published-drf", NodeRule.PACK) == NodeRule.LEAST_USED_ONLY
    assert rule_of("drf", NodeRule.PACK) == NodeRule.PACK
    assert rule_of("drf") == NodeRule.SPREAD


@pytest.mark.parametrize(
    ("name", "rule"),
    [("spread", NodeRule.SPREAD), ("pack", NodeRule.PACK), ("round-robin", NodeRule.ROUND_ROBIN)],
)
def test_placements(name: str, rule: NodeRule) -> None:
    assert placement_rule(name) == rule


def test_an_unknown_placement() -> None:
    with pytest.raises(BadInput, match="unknown placement least-used-only: give one of spread, pack, round-robin"):
        placement_rule("least-used-only")
