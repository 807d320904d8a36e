"""Followers: never the owner, on another machine where there are two, balanced, few changes."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.core.job import DurableJob
from coordinator.core.plans.followers import fill, place
from coordinator.core.plans.next_configuration import target
from coordinator.core.plans.scale_goal import ScaleGoal
from elastic_ps.core.configuration import ConfigId, Member, Role
from elastic_ps.core.model import Model, Tensor
from tests.sweeps import examples

Case = tuple[list[int], list[int], list[str], list[int | None], list[int | None]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    servers = draw(st.integers(2, 6))
    machines = draw(st.lists(st.sampled_from("abc"), min_size=servers, max_size=servers))
    someone = st.integers(0, servers - 1)
    perhaps = st.one_of(st.none(), someone)
    size = st.one_of(st.integers(0, 3), st.integers(0, 100), st.just(64))
    blocks = draw(st.lists(st.tuples(size, someone, perhaps, perhaps), max_size=40))
    sizes, owners, before, former = (list(column) for column in zip(*blocks, strict=True)) if blocks else ([],) * 4
    return sizes, owners, machines, before, former


def eligible(owner: int, machines: list[str]) -> list[int]:
    others = [server for server in range(len(machines)) if server != owner]
    return [server for server in others if machines[server] != machines[owner]] or others


def loads_of(sizes: list[int], machines: list[str], *columns) -> list[int]:
    loads = [0] * len(machines)
    for column in columns:
        for size, server in zip(sizes, column, strict=True):
            loads[server] += size
    return loads


@pytest.mark.slow
@settings(max_examples=examples(400), deadline=None)
@given(cases())
def test_followers_are_elsewhere_and_balanced(case: Case) -> None:
    sizes, owners, machines, _, _ = case
    after = place(*case)
    loads = loads_of(sizes, machines, owners, after)
    for block, (owner, follower) in enumerate(zip(owners, after, strict=True)):
        may = eligible(owner, machines)
        assert follower in may
        if sizes[block]:
            assert loads[follower] - min(loads[server] for server in may) <= max(sizes)


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(cases())
def test_placed_followers_are_left_alone(case: Case) -> None:
    sizes, owners, machines, _, former = case
    after = place(*case)
    assert place(sizes, owners, machines, after, former) == after


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(cases())
def test_filling_changes_none_that_is_there(case: Case) -> None:
    sizes, owners, machines, before, _ = case
    before = [server if server != owner else None for server, owner in zip(before, owners, strict=True)]
    after = fill(sizes, owners, machines, before)
    for owner, old, new in zip(owners, before, after, strict=True):
        assert new == old if old is not None else new in eligible(owner, machines)


def test_nobody_follows_where_one_server_is():
    assert place([4, 4], [0, 0], ["a"], [None] * 2, [0, 0]) == ()
    assert fill([4, 4], [0, 0], ["a"], [None] * 2) == ()


def test_moved_block_keeps_its_follower():
    assert place([8, 8, 8], [2, 1, 0], ["a"] * 3, [1, 0, 2], [0, 1, 0]) == (1, 0, 2)


def test_former_owner_follows_where_the_follower_becomes_the_owner():
    """The model's `swap`: no bytes move."""
    assert place([8, 8], [1, 0], ["a", "b"], [1, 1], [0, 0]) == (0, 1)


def test_runs_of_blocks_stay_together():
    owners = [0] * 8 + [1] * 8 + [2] * 8
    after = place([4] * 24, owners, ["a", "b", "c"], [None] * 24, [None] * 24)
    assert sum(left != right for left, right in itertools.pairwise(after)) == 2


def test_model_on_two_machines_is_followed_across_them():
    after = place([4] * 8, [0, 1, 2, 3] * 2, ["a", "a", "b", "b"], [None] * 8, [None] * 8)
    assert {after[block] // 2 for block in range(8) if block % 4 < 2} == {1}
    assert {after[block] // 2 for block in range(8) if block % 4 >= 2} == {0}


def machines_apart(hosts: list[str], machines: list[str]) -> list[bool]:
    """By block, whether owner and follower are on different machines, where servers say of themselves what is given."""
    servers = [
        Member(f"s{number}", Role.SERVER, host, 9, machine)
        for number, (host, machine) in enumerate(zip(hosts, machines, strict=True))
    ]
    tensors = [Tensor(0, f"i:{number}", (16,), "float32") for number in range(12)]
    job = DurableJob(ScaleGoal(1, len(servers)), model=Model(block_bytes=64).extended(tensors))
    made = target(job, servers, (), ConfigId(1, 1), replicas=1)
    return [
        servers[owner].failure_domain != servers[follower].failure_domain
        for owner, follower in zip(made.assignment, made.followers, strict=True)
    ]


def test_pods_of_one_machine_are_together_though_their_addresses_differ():
    addresses = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]
    assert machines_apart(addresses, ["node-1", "node-1", "node-2", "node-2"]) == [True] * 12
    assert machines_apart(addresses, ["node-1"] * 4) == [False] * 12


def test_servers_that_name_no_machine_are_together_at_one_address():
    assert machines_apart(["10.0.0.1", "10.0.0.1", "10.0.0.2"], [""] * 3) == [True] * 12
