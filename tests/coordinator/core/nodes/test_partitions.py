"""Who leaves when some cannot reach others: compared with every possible set, on small graphs."""

from itertools import chain, combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.core.nodes.partitions import best_cut

NAMES = [f"n{number}" for number in range(7)]
PAIRS = [frozenset(pair) for pair in combinations(NAMES, 2)]


def by_count(names):
    return len(names), tuple(sorted(names))


def remains_whole(pairs, gone):
    return all(pair & gone for pair in pairs)


@pytest.mark.slow
@settings(derandomize=True, deadline=None)
@given(st.sets(st.sampled_from(PAIRS), max_size=12), st.lists(st.integers(1, 9), min_size=7, max_size=7))
def test_the_cut_is_the_cheapest_of_all_sets_that_leave_nobody_apart(pairs, weights):
    weight = dict(zip(NAMES, weights, strict=True))

    def cost(names):
        return sum(weight[name] for name in names), tuple(sorted(names))

    everything = chain.from_iterable(combinations(NAMES, size) for size in range(len(NAMES) + 1))
    best = min((frozenset(names) for names in everything if remains_whole(pairs, frozenset(names))), key=cost)
    assert best_cut(pairs, cost) == best


@settings(derandomize=True, deadline=None)
@given(st.sets(st.sampled_from(PAIRS), min_size=13))
def test_beyond_the_exact_size_nobody_who_remains_is_apart(pairs):
    gone = best_cut(pairs, by_count)
    assert remains_whole(pairs, gone)
    assert len(gone) < len(NAMES)


def test_nobody_leaves_where_everybody_reaches_everybody():
    assert best_cut([], by_count) == frozenset()


def test_one_node_that_many_cannot_reach_is_cut_off_also_where_they_are_too_many_to_try_all():
    pairs = [frozenset({"s0", f"w{number}"}) for number in range(40)]
    assert best_cut(pairs, by_count) == {"s0"}
