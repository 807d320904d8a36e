"""What a ranking remembers is what a plain scan finds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2_scheduler.cluster.free_resources import NOWHERE, NodeRule, pick_node, take
from dl2_scheduler.policies.rules.node_filling import advance, claim, claim_both, fit_on_two, nodes_of
from dl2_scheduler.policies.rules.ranking import changed, first_of, ranking

RULES = st.sampled_from(NodeRule)
DEMANDS = np.array([[1.0, 0.0], [2.0, 1.0], [0.1, 2.0], [0.0, 0.0], [9.0, 9.0]])


@settings(deadline=None)
@given(st.integers(0, 99), st.integers(1, 300), st.sampled_from([1.0, -1.0]))
def test_the_first_of_numbers_that_change(seed: int, numbers: int, sign: float) -> None:
    random = np.random.default_rng(seed)
    keys = random.integers(0, 3, numbers).astype(float)
    ranks = ranking(2, numbers)
    nothing, needed = np.zeros(0), np.array([1.0])
    free = random.integers(0, 2, (numbers, 1)).astype(float)
    for _ in range(40):
        for question, demand in ((0, nothing), (1, needed)):
            fitting = [number for number in range(numbers) if not len(demand) or free[number, 0] >= 1]
            wanted = min(fitting, key=lambda number: sign * keys[number], default=NOWHERE)
            assert first_of(ranks, question, keys, sign, free, demand) == wanted
        for number in random.integers(0, numbers, random.integers(0, 4)):
            keys[number], free[number, 0] = random.integers(0, 3), random.integers(0, 2)
            changed(ranks, number)


def test_infinity_comes_nowhere() -> None:
    ranks = ranking(1, 40)
    keys, nothing = np.full(40, np.inf), np.zeros(0)
    assert first_of(ranks, 0, keys, 1.0, keys.reshape(-1, 1), nothing) == NOWHERE
    keys[37] = 5.0
    changed(ranks, 37)
    assert first_of(ranks, 0, keys, 1.0, keys.reshape(-1, 1), nothing) == 37


@settings(deadline=None)
@given(st.integers(0, 999), st.integers(1, 40), RULES)
def test_tasks_go_where_a_scan_would_put_them(seed: int, count: int, rule: NodeRule) -> None:
    random = np.random.default_rng(seed)
    capacity = random.choice([0.0, 1.0, 3.3, 4.0], (count, 2))
    nodes = nodes_of(DEMANDS, capacity, int(rule))
    free, used, last = capacity.copy(), np.zeros(count), NOWHERE
    for kind in random.integers(0, len(DEMANDS), 3 * count):
        wanted = pick_node(free, used, DEMANDS[kind], int(rule), last)
        assert claim(nodes, kind, last) == wanted
        if wanted != NOWHERE:
            take(free, used, capacity, wanted, DEMANDS[kind])
            last = wanted
        advance(nodes)
        assert nodes.free.tolist() == free.tolist()
        assert nodes.used.tolist() == used.tolist()
        fits = (free >= DEMANDS[:, None] - 1e-9).all(axis=2)
        assert nodes.first.tolist() == np.where(fits.any(axis=1), fits.argmax(axis=1), NOWHERE).tolist()
        two = fits[0].any() and fits[1].any() and (fits[0] | fits[1]).sum() > 1
        assert fit_on_two(nodes, 0, 1) == two


@pytest.mark.parametrize("capacity", [[[2.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [2.0, 1.0]]])
def test_two_tasks_find_their_nodes_in_either_order(capacity: list[list[float]]) -> None:
    """The least used of equals is the first node, which only one of the two fits."""
    for kinds in ((0, 1), (1, 0)):
        nodes = nodes_of(DEMANDS, np.array(capacity), int(NodeRule.SPREAD))
        assert claim_both(nodes, *kinds, NOWHERE) != NOWHERE
        assert not nodes.free.any()
        assert claim_both(nodes, *kinds, NOWHERE) == NOWHERE
        assert not nodes.free.any()
