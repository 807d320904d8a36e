"""Followers: never the owner, on another host where there are two, balanced, few changes."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.core.plans.followers import fill, place

Case = tuple[list[int], list[int], list[str], list[int | None], list[int | None]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    servers = draw(st.integers(2, 6))
    hosts = draw(st.lists(st.sampled_from("abc"), min_size=servers, max_size=servers))
    someone = st.integers(0, servers - 1)
    perhaps = st.one_of(st.none(), someone)
    size = st.one_of(st.integers(0, 3), st.integers(0, 100), st.just(64))
    blocks = draw(st.lists(st.tuples(size, someone, perhaps, perhaps), max_size=40))
    sizes, owners, before, former = (list(column) for column in zip(*blocks, strict=True)) if blocks else ([],) * 4
    return sizes, owners, hosts, before, former


def eligible(owner: int, hosts: list[str]) -> list[int]:
    others = [server for server in range(len(hosts)) if server != owner]
    return [server for server in others if hosts[server] != hosts[owner]] or others


def loads_of(sizes: list[int], hosts: list[str], *columns) -> list[int]:
    loads = [0] * len(hosts)
    for column in columns:
        for size, server in zip(sizes, column, strict=True):
            loads[server] += size
    return loads


@settings(max_examples=400, deadline=None)
@given(cases())
def test_followers_are_elsewhere_and_balanced(case: Case) -> None:
    sizes, owners, hosts, _, _ = case
    after = place(*case)
    loads = loads_of(sizes, hosts, owners, after)
    for block, (owner, follower) in enumerate(zip(owners, after, strict=True)):
        may = eligible(owner, hosts)
        assert follower in may
        if sizes[block]:
            assert loads[follower] - min(loads[server] for server in may) <= max(sizes)


@settings(max_examples=200, deadline=None)
@given(cases())
def test_placed_followers_are_left_alone(case: Case) -> None:
    sizes, owners, hosts, _, former = case
    after = place(*case)
    assert place(sizes, owners, hosts, after, former) == after


@settings(max_examples=200, deadline=None)
@given(cases())
def test_filling_changes_none_that_is_there(case: Case) -> None:
    sizes, owners, hosts, before, _ = case
    before = [server if server != owner else None for server, owner in zip(before, owners, strict=True)]
    after = fill(sizes, owners, hosts, before)
    for owner, old, new in zip(owners, before, after, strict=True):
        assert new == old if old is not None else new in eligible(owner, hosts)


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


def test_model_on_two_hosts_is_followed_across_them():
    after = place([4] * 8, [0, 1, 2, 3] * 2, ["a", "a", "b", "b"], [None] * 8, [None] * 8)
    assert {after[block] // 2 for block in range(8) if block % 4 < 2} == {1}
    assert {after[block] // 2 for block in range(8) if block % 4 >= 2} == {0}
