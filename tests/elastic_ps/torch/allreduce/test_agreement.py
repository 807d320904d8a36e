"""Members of a configuration agree on one version: the newest that any of them holds."""

import pytest

pytest.importorskip("torch")

from elastic_ps.core.errors import JobEnded
from elastic_ps.torch.allreduce.agreement import BEGINS, LACKS, Agreement, HeldVersion, agree, checked


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
    assert agree(list(map(HeldVersion, held, keeps))) == found


def test_a_job_that_has_trained_does_not_begin_anew_with_those_who_join():
    with pytest.raises(JobEnded, match="nobody has the job's parameters any more"):
        agree([HeldVersion(LACKS), HeldVersion(LACKS)])


@pytest.mark.parametrize(
    ("held", "proven", "found"),
    [
        ([5, 5], [True, False], Agreement(5, 0, frozenset(), frozenset())),
        ([5, 4], [True, False], Agreement(5, 0, frozenset({1}), frozenset())),
        ([5, 3], [True, False], Agreement(5, 0, frozenset(), frozenset({1}))),
        ([4, 5], [True, False], Agreement(5, 1, frozenset({0}), frozenset())),
    ],
)
def test_a_shadow_counts_like_a_member_beside_one(held, proven, found):
    assert agree(list(map(HeldVersion, held, [True, True], proven))) == found


def test_a_shadow_alone_does_not_go_on_it_may_have_less_than_was_reported():
    with pytest.raises(JobEnded, match="nobody has the job's parameters any more"):
        agree([HeldVersion(5, True, False), HeldVersion(LACKS, False, False)])


def test_a_shadow_that_has_come_to_other_parameters_holds_nothing():
    member, other = HeldVersion(5, True, True, 17, 3), HeldVersion(5, False, False, 18, 3)
    assert [each.held for each in checked([member, other])] == [5, LACKS]
    assert checked([member, HeldVersion(4, False, False, 18)])[1].held == 4, "of another version: nobody can tell"
    assert checked([member, HeldVersion(5, True, True, 18)])[1].held == 5, "members are not compared"
    assert HeldVersion.of(member.told()) == member
