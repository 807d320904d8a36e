"""Who joins has no samples of its first step, and where members disagree on who does, the step is divided among all."""

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from elastic_ps.core.data_order import DataSpec, Place, share
from elastic_ps.torch.allreduce.step_division import StepDivision
from elastic_ps.worker.script.data_position import StepPart

SPEC = DataSpec(True, 53, 8, "short", "mean")


def parts_of(known, roster, step=2, version=2):
    """Return each member's division and part, by those with whom it has made the step before."""
    divisions, parts = [], []
    for rank, (own, before) in enumerate(zip(roster, known, strict=True)):
        division = StepDivision()
        division.stepped(before)
        part = StepPart(Place(0, step), share(SPEC, step, rank, len(roster)), 0, tuple(roster))
        divisions.append(division)
        parts.append(division.part_of(part, own, SPEC, version))
    return divisions, parts


def positions(parts):
    return [part.positions for part in parts]


def sound(divisions, parts, version=2):
    told = positions(parts)
    return [division.is_sound(told, part, SPEC, version) for division, part in zip(divisions, parts, strict=True)]


def test_a_joiner_has_none_of_its_first_step():
    divisions, parts = parts_of([("a", "b"), ("a", "b"), ("a", "b")], ["a", "b", "c"])
    assert positions(parts) == [range(16, 20), range(20, 24), range(0)]
    assert sound(divisions, parts) == [True] * 3


@pytest.mark.parametrize("known", [[None] * 3, [("a", "b", "c")] * 3, [("x",)] * 3, [("a", "b", "c", "d")] * 3])
def test_without_joiners_or_without_others_all_share(known):
    divisions, parts = parts_of(known, ["a", "b", "c"])
    assert positions(parts) == [range(16, 19), range(19, 22), range(22, 24)]
    assert sound(divisions, parts) == [True] * 3


@pytest.mark.parametrize("other", [None, ("b",), ("b", "c")])
def test_members_that_disagree_divide_the_step_among_all(other):
    roster = ["a", "b", "c"]
    divisions, parts = parts_of([("a", "b"), other, ("a", "b")], roster)
    assert sound(divisions, parts) == [False] * 3
    again = [
        division.part_of(replace(part, positions=share(SPEC, 2, rank, 3)), own, SPEC, 2)
        for rank, (division, part, own) in enumerate(zip(divisions, parts, roster, strict=True))
    ]
    assert positions(again) == [range(16, 19), range(19, 22), range(22, 24)]
    assert sound(divisions, again) == [True] * 3
    assert positions([divisions[0].part_of(again[0], "a", SPEC, 3)]) != [again[0].positions], "of that step alone"


def test_the_short_last_step_is_whole_too():
    divisions, parts = parts_of([("a",), ("a",)], ["a", "b"], step=6)
    assert positions(parts) == [range(48, 53), range(0)]
    assert sound(divisions, parts) == [True] * 2
