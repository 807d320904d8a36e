"""What a script hands over with `report`."""

import math

import numpy as np
import pytest

from elastic_ps.core.errors import ConfigurationError


@pytest.fixture
def play(scripted):
    return scripted


def test_metrics_are_whatever_is_a_number(play):
    play.job.report(3, {"loss": math.nan, "norm": np.float32(0.5), "rate": np.array([2])[0]})
    metrics = play.node.report().metrics
    assert math.isnan(metrics.pop("loss"))
    assert metrics == {"norm": 0.5, "rate": 2}


@pytest.mark.parametrize("value", ["abc", None, np.ones(2)], ids=str)
def test_what_is_no_number_is_refused_by_name(play, value):
    with pytest.raises(ConfigurationError, match=r"report: loss = .* is no number; give one, as in loss=0\.31"):
        play.job.report(3, {"loss": value, "norm": 1})
    assert not play.node.report().metrics
