"""Members of a configuration agree on one version: the newest that any of them holds."""

import pytest

pytest.importorskip("torch")

from elastic_ps.core.errors import JobEnded
from elastic_ps.torch.allreduce.agreement import BEGINS, LACKS, Agreement, agree


@pytest.mark.parametrize(
    ("held", "keeps", "found"),
    [
        ([4, 4], [True, True], Agreement(4, 0, frozenset(), frozenset())),
        ([4, 5], [True, True], Agreement(5, 1, frozenset({0}), frozenset())),
        ([5, 4, 5], [False, True, True], Agreement(5, 2, frozenset({1}), frozenset())),
        ([5, 4], [False, True], Agreement(5, 0, frozenset(), frozenset({1}))),
        ([5, LACKS], [True, False], Agreement(5, 0, frozenset(), frozenset({1}))),
        ([LACKS, 4, 5], [False, True, True], Agreement(5, 2, frozenset({1}), frozenset({0}))),
        ([0, BEGINS], [False, False], Agreement(0, 0, frozenset(), frozenset({1}))),
        ([BEGINS, BEGINS, BEGINS], [False] * 3, Agreement(0, 0, frozenset(), frozenset({1, 2}))),
        ([LACKS, BEGINS], [False, False], Agreement(0, 1, frozenset(), frozenset({0}))),
        ([3], [False], Agreement(3, 0, frozenset(), frozenset())),
    ],
)
def test_all_come_to_hold_the_newest_version(held, keeps, found):
    assert agree(held, keeps) == found


def test_a_job_that_has_trained_does_not_begin_anew_with_those_who_join():
    with pytest.raises(JobEnded, match="nobody has the job's parameters any more"):
        agree([LACKS, LACKS], [False, False])
