"""Runs of blocks, cut and joined."""

import json
from itertools import pairwise

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elastic_ps.core.segments import joined, runs_of, stretches


@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, 2), min_size=1, max_size=20))
def test_stretches_cut_exactly_where_something_changes(values: list[int]) -> None:
    found = list(stretches(np.array(values)))
    assert [low for low, _ in found] == [0] + [i for i in range(1, len(values)) if values[i] != values[i - 1]]
    assert joined((low, high - low) for low, high in found) == [(0, len(values))]


@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_runs_are_of_what_is_wanted_in_numbers_that_a_frame_can_say(wanted: list[bool]) -> None:
    found = json.loads(json.dumps(runs_of(np.array(wanted))))
    blocks = [block for first, count in found for block in range(first, first + count)]
    assert blocks == [block for block, is_wanted in enumerate(wanted) if is_wanted]
    assert all(first > sum(before) for before, (first, _) in pairwise(found))
