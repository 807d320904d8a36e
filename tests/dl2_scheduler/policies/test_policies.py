"""What every policy keeps to, whatever its name."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule, check_minimum_fits
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.placement.answer_checks import check
from dl2_scheduler.cluster.snapshot import JobState, Snapshot
from dl2_scheduler.learning.networks import new_policy
from dl2_scheduler.policies.learnt.dl2 import Dl2
from dl2_scheduler.policies.placement.node_rules import placement_rule
from dl2_scheduler.policies.registry import LIVE_NAMES, POLICY_NAMES, make_policy, rule_of
from dl2_scheduler.sim.simulator import SimulatedCluster, run
from tests.dl2_scheduler.cluster.test_free_resources import check_books
from tests.dl2_scheduler.clusters import NODES, SPEEDS, counts, job, nodes, snapshot, snapshots
from tests.sweeps import examples

pytestmark = pytest.mark.timeout(300)

every_policy = pytest.mark.parametrize("name", POLICY_NAMES)
PLACEMENTS = st.sampled_from([NodeRule.SPREAD, NodeRule.PACK, NodeRule.ROUND_ROBIN])


def decide(policy: AllocationPolicy, now: Snapshot, rule: NodeRule) -> dict[int | str, tuple[int, int]]:
    """What a policy decides, once all that the contract asks has been checked."""
    room = FreeResources(now, rule)
    given = counts(policy.allocate(now, room))
    check_books(room)
    assert list(given) == [state.job.id for state in now.jobs]
    for number, state in enumerate(now.jobs):
        workers, servers = given[state.job.id]
        assert 0 <= workers <= min(state.job.max_workers, room.workers(number))
        assert 0 <= servers <= min(state.job.max_servers, room.servers(number))
        assert (workers, servers) == (0, 0) or (workers >= state.job.min_workers and servers >= state.job.min_servers)
    return given


@pytest.mark.slow
@every_policy
@settings(deadline=None, max_examples=examples(25))
@given(data=st.data(), asked=PLACEMENTS)
def test_contract(name: str, data: st.DataObject, asked: NodeRule) -> None:
    machines = data.draw(NODES)
    slots = data.draw(st.lists(snapshots(machines), min_size=1, max_size=3))
    first, second = make_policy(name, SPEEDS), make_policy(name, SPEEDS)
    for now in slots:
        assert decide(first, now, rule_of(name, asked)) == decide(second, now, rule_of(name, asked))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in POLICY_NAMES if not name.startswith("published-")])
@settings(deadline=None, max_examples=examples(60))
@given(data=st.data(), asked=PLACEMENTS)
def test_contract_with_gangs(name: str, data: st.DataObject, asked: NodeRule) -> None:
    machines = data.draw(NODES)
    policy, again = make_policy(name, SPEEDS), make_policy(name, SPEEDS)
    for now in data.draw(st.lists(snapshots(machines, gangs=True), min_size=1, max_size=3)):
        assert decide(policy, now, asked) == decide(again, now, asked)


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(100))
@given(data=st.data(), asked=PLACEMENTS, seed=st.integers(0, 3))
def test_the_learnt_policy_keeps_to_minima_too(data: st.DataObject, asked: NodeRule, seed: int) -> None:
    now = data.draw(snapshots(gangs=True))
    given = counts(Dl2(new_policy(SPEEDS.models, seed).weights()).allocate(now, FreeResources(now, asked)))
    assert list(given) == [state.job.id for state in now.jobs]
    held = {name: 0.0 for node in now.nodes for name in node.capacity}
    for state in now.jobs:
        workers, servers = given[state.job.id]
        job = state.job
        assert (workers, servers) == (0, 0) or (
            job.min_workers <= workers <= job.max_workers and job.min_servers <= servers <= job.max_servers
        )
        for demand, count in ((job.worker, workers), (job.server, servers)):
            for name, amount in demand.items():
                held[name] = held.get(name, 0.0) + amount * count
    for name, amount in held.items():
        assert amount <= sum(node.capacity.get(name, 0) for node in now.nodes) + 1e-6


@every_policy
def test_a_gang_is_given_whole_or_not_at_all(name: str) -> None:
    gangs = [job(1, min_workers=3, min_servers=2), job(2, min_workers=3, min_servers=2)]
    for room in (4, 5, 9, 10):
        now = snapshot(gangs, nodes({"cpu": room - 3}, {"cpu": 3}))
        if name.startswith("published-"):
            with pytest.raises(BadInput, match="job 1 needs 3 workers and 2 servers to run; published rules"):
                decide(make_policy(name, SPEEDS), now, rule_of(name))
            continue
        first, second = (sum(each) for each in decide(make_policy(name, SPEEDS), now, rule_of(name)).values())
        if room < 10:
            assert (first == 0) == (room == 4)
            assert second == 0
        else:
            assert (first, second) == (5, 5) if name in ("drf", "optimus", "optimus-true") else first >= 5


OURS = [name for name in POLICY_NAMES if not name.startswith("published-")]
LEARNT = "learnt"


@pytest.mark.parametrize("name", [*OURS, LEARNT])
@pytest.mark.parametrize("rule", [NodeRule.SPREAD, NodeRule.PACK, NodeRule.ROUND_ROBIN])
def test_what_fits_an_empty_cluster_when_packed_is_granted(name: str, rule: NodeRule) -> None:
    """The servers, spread, leave no node room for both workers: 6 - 3 and 4 - 3; packed they fill the first."""
    gang = job(worker={"cpu": 2}, server={"cpu": 3}, min_workers=2, min_servers=2)
    ran = JobState(gang, 0.0, 1, 2, 2)  # so that no network may stop before it has something
    now = snapshot([ran], nodes({"cpu": 6}, {"cpu": 4}))
    check_minimum_fits(gang, now.nodes)
    policy = Dl2(new_policy(SPEEDS.models, 0).weights()) if name == LEARNT else make_policy(name, SPEEDS)
    room = FreeResources(now, rule)
    allocation = policy.allocate(now, room)
    assert counts(allocation) == {1: (2, 2)}
    check(now, allocation, room)


@every_policy
def test_no_jobs(name: str) -> None:
    assert decide(make_policy(name, SPEEDS), snapshot([], nodes({"cpu": 8})), rule_of(name)) == {}


@pytest.mark.parametrize("name", LIVE_NAMES)
def test_no_nodes(name: str) -> None:
    """As on Kubernetes while all are gone, or cordoned."""
    assert decide(make_policy(name, SPEEDS), snapshot([job()], ()), NodeRule.SPREAD) == {1: (0, 0)}


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
    with pytest.raises(BadInput, match=r"unknown policy dfr: give one of drf, fifo, .*published-optimus, dl2:PATH"):
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
