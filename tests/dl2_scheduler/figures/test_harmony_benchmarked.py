"""Harmony's figures of what benchmarks have measured: they say which one is missing, and draw what is there."""

import csv
import json

import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.figures.placement import benchmarked
from dl2_scheduler.figures.placement.registry import draw_harmony

ARRIVALS = [
    {"arrivals": "uniform-2", "policy": "best fit", "intervals": 4.9, "median learnt under it %": 60.0},
    {"arrivals": "uniform-2", "policy": "best fit, shortest first", "intervals": 4.0, "median learnt under it %": 50.0},
    {"arrivals": "uniform-2", "policy": "learnt, seed 0", "intervals": 1.9, "median learnt under it %": -1.0},
    {"arrivals": "uniform-2", "policy": "learnt, seed 1", "intervals": 2.0, "median learnt under it %": 0.0},
]
ERRORS = [
    {"fitted to": what, "by": by, "error %": error, "ctc": error - 1, "wlm": error + 1}
    for what, by, error in (("300 samples", "a", 7.0), ("1,000 samples", "a", 5.0), ("1,000, unseen pairs", "a", 9.0))
]
VARIANTS = [
    {"variant": variant, "seed": seed, "over %": over + seed}
    for variant, over in (("full", 10.0), ("no replay", 20.0), ("32 neurons", 12.0), ("2 layers", 11.0))
    for seed in (0, 2)
]
FILES = {"placement_harmony": ARRIVALS, "placement_reward": ERRORS, "placement_harmony_paper": VARIANTS}


@pytest.fixture
def benchmarks(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmarked, "BENCHMARKS", tmp_path)
    for name, rows in FILES.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"rows": rows}))
    return tmp_path


def drawn(number, folder):
    assert draw_harmony(number, folder).read_bytes().startswith(b"\x89PNG")
    with (folder / f"{number}.csv").open() as file:
        return [tuple(row.values()) for row in csv.DictReader(file)]


def test_rules_are_in_their_better_order_and_the_median_seed_is_drawn(benchmarks):
    assert drawn("harmony-8", benchmarks) == [("best fit", "uniform-2", "4.0000"), ("learnt", "uniform-2", "2.0000")]


@pytest.mark.parametrize(
    ("number", "first"),
    [
        ("harmony-9a", ("a", "300 samples", "7.0000")),
        ("harmony-9b", ("a", "ctc", "4.0000")),
        ("harmony-10a", ("32", "13.0000")),
        ("harmony-10b", ("2", "12.0000")),
        ("harmony-table-2", ("full", "11.0000", "0.0000")),
    ],
)
def test_what_was_measured_is_drawn(benchmarks, number, first):
    assert drawn(number, benchmarks)[0] == first


def test_what_was_not_measured_is_named(benchmarks):
    (benchmarks / "placement_harmony.json").unlink()
    with pytest.raises(BadInput, match="make bench-placement_harmony"):
        draw_harmony("harmony-8", benchmarks)
    (benchmarks / "placement_harmony_paper.json").write_text('{"rows": []}')
    with pytest.raises(BadInput, match="no variants"):
        draw_harmony("harmony-10a", benchmarks)
