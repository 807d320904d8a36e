"""Models of speeds are compared on pairs of jobs that share one GPU."""

import json
from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np
import pytest

from benchmarks.placement_pairs import FittedLoads, read_pairs
from dl2_scheduler.cluster.hardware.measured import MeasuredJob, MeasuredPlacement
from dl2_scheduler.cluster.hardware.measured_table import arrays_of

ONE, OTHER, LARGE, TWO_GPUS = "('a (batch 1)', 1)", "('b', 1)", "('c', 1)", "('a (batch 1)', 2)"


def test_pairs_are_read_once_and_only_where_both_jobs_ran(tmp_path: Path) -> None:
    speeds = {
        ONE: {"null": 8.0, ONE: [4.0, 4.0], OTHER: [6.0, 1.0], LARGE: [0.0, 0.0]},
        OTHER: {"null": 2.0, ONE: [1.0, 6.0], OTHER: [1.5, 1.5]},
        LARGE: {"null": 3.0, ONE: [0.0, 0.0]},
        TWO_GPUS: {"null": 15.0, TWO_GPUS: [9.0, 9.0]},
    }
    path = tmp_path / "throughputs.json"
    path.write_text(json.dumps({"v100": speeds}))
    found = [[(job.model, job.speed) for job in row.jobs] for row in read_pairs(path, "v100")]
    a, b = "a (batch 1)", "b"
    assert found[:3] == [[(a, 8.0)], [(b, 2.0)], [("c", 3.0)]]
    assert found[3:] == [[(a, 4.0), (a, 4.0)], [(a, 6.0), (b, 1.0)], [(b, 1.5), (b, 1.5)]]


@pytest.mark.parametrize("text", ["{}", "[]", "no json", '{"v100": {"ResNet": {"null": 1.0}}}'])
def test_another_file_is_refused(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "throughputs.json"
    path.write_text(text)
    with pytest.raises(SystemExit, match="2"):
        read_pairs(path, "v100")
    assert "is not Gavel's simulation_throughputs.json with v100" in capsys.readouterr().err


def test_loads_that_add_up_are_found_from_the_slowdowns_alone() -> None:
    models = [f"model-{number}" for number in range(8)]
    rng = np.random.default_rng(1)
    alone, sensitivity, load = rng.uniform(1, 9, 8), rng.uniform(0.2, 1, 8), rng.uniform(0.2, 2, 8)

    def pair(a: int, b: int) -> MeasuredPlacement:
        speeds = [alone[own] / (1 + sensitivity[own] * load[other]) for own, other in ((a, b), (b, a))]
        each = zip((a, b), speeds, strict=True)
        return MeasuredPlacement(tuple(MeasuredJob(models[own], (0,), (0,), (speed,)) for own, speed in each))

    pairs = [pair(*each) for each in combinations_with_replacement(range(8), 2)]
    held_out = pairs[3::5]
    fitted = FittedLoads.fitted([each for each in pairs if each not in held_out], models, alone)
    for row in held_out:
        assert fitted.rates(arrays_of(row, models)) == pytest.approx([job.speed for job in row.jobs], rel=0.05)
