"""Which jobs `make bench-replicas` measures, and what it makes of their times."""

import pytest

from benchmarks import replicas


def row(part, ratio, mxnet=None):
    return {"part": part, "model": "resnet50", "job": "2w2s", "with ms": 10 * ratio, "ratio": ratio, "mxnet ms": mxnet}


def test_a_part_is_judged_by_the_geometric_mean_of_its_ratios():
    found = {goal.name: goal for goal in replicas.goals([row("exchange", 1.0), row("exchange", 4.0), row("rows", 1.2)])}
    assert found["exchange: geometric mean of the ratios"].value == pytest.approx(2.0)
    assert not found["exchange: geometric mean of the ratios"].met
    assert found["rows: geometric mean of the ratios"].met


def test_mxnet_is_compared_with_the_protected_step():
    (_, goal) = replicas.goals([row("exchange", 2.0, mxnet=50.0)])
    assert goal.value == pytest.approx(2.5)
    assert not goal.met
