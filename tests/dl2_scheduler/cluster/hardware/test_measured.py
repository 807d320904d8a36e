"""Measured placements: what is the same one, tables of them, and what LIF reads out of them."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.measured import MeasuredJob, MeasuredPlacement, merged, placement_key
from dl2_scheduler.cluster.hardware.measured_loads import AloneSpeeds, SlowedSpeed, load_points
from dl2_scheduler.cluster.hardware.measured_table import MeasuredTable, arrays_of, read_row, read_table, row_line
from dl2_scheduler.cluster.hardware.profiles import PUBLISHED
from dl2_scheduler.learning.placement.measured_fit import fit_load

PROFILES = {model: PUBLISHED[model] for model in ("ctc", "wlm")}
(HEAD,) = MeasuredTable((), PROFILES, 2).lines()
ROW = '{"jobs":[{"model":"ctc","workers":[0],"servers":[1],"speeds":[3.5]}]}'


def row(*jobs: tuple[str, tuple[int, ...], tuple[int, ...], tuple[float, ...]]) -> MeasuredPlacement:
    return MeasuredPlacement(tuple(MeasuredJob(*job) for job in jobs), (0.1,) * len(jobs[0][3]))


places = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)
clusters = st.lists(st.tuples(st.sampled_from("abc"), places, places), min_size=1, max_size=4)


@given(clusters, st.permutations(range(4)), st.randoms())
def test_key_ignores_the_order_of_jobs_and_tasks_and_the_numbers_of_groups(jobs, order, random):
    other = [
        (model, *(tuple(random.sample([order[group] for group in role], len(role))) for role in roles))
        for model, *roles in random.sample(jobs, len(jobs))
    ]
    assert placement_key(other) == placement_key(jobs)


def test_other_places_have_another_key():
    together, apart = placement_key([("a", (0,), (0,))]), placement_key([("a", (0,), (1,))])
    assert together != apart
    assert placement_key([("a", (0,), (1,))]) != placement_key([("b", (0,), (1,))])


def test_rows_of_one_placement_are_one_row_with_all_speeds():
    one = row(("a", (0,), (1,), (10.0,)), ("b", (1,), (1,), (20.0,)))
    again = row(("b", (0,), (0,), (22.0,)), ("a", (1,), (0,), (11.0,)))
    other = row(("a", (0,), (0,), (9.0,)))
    (both, alone) = merged([one, other, again])
    assert {job.model: job.speeds for job in both.jobs} == {"a": (10.0, 11.0), "b": (20.0, 22.0)}
    assert both.others == (0.1, 0.1)
    assert alone == other


def test_table_is_read_as_it_was_written(tmp_path: Path):
    rows = (row(("ctc", (0,), (1,), (1.0, 2.0, 3.0))), row(("wlm", (0, 1), (1,), (4.0,))))
    table = MeasuredTable(rows, PROFILES, 2, {"licence": "CC BY 4.0"})
    path = tmp_path / "table.jsonl"
    path.write_text("".join(f"{line}\n" for line in table.lines()))
    assert read_table(path) == table
    assert rows[0].jobs[0].speed == 2.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"groups": 2, "profiles": {}}\n{"jobs": [{"model": "a"}]}',
        '{"groups": "many", "profiles": {}}',
        '{"groups": 0, "profiles": {}}',
        '{"groups": 100000000, "profiles": {}}',
        '{"groups": 2, "profiles": {}}',
        "[" * 100_000,
        "[1]",
    ],
)
def test_other_files_are_refused(text: str, tmp_path: Path):
    path = tmp_path / "table.jsonl"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"table\.jsonl"):
        read_table(path)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"alone_s": 0.0}, {"apart_mbps": math.nan}, {"cpu_worker": -1.0}, {"batch": 10**400}, {"size_mb": 1e308}),
        *({"worker": {"cpu": -1.0}}, {"server": {"cpu": math.inf}}, {"worker": {"cpu": 10**400}}),
    ],
)
def test_profiles_that_cannot_be_are_refused(wrong: dict[str, Any], tmp_path: Path):
    profiles = {model: replace(PUBLISHED[model], **wrong) for model in ("ctc", "wlm")}
    path = tmp_path / "table.jsonl"
    path.write_text("\n".join(MeasuredTable((), profiles, 2).lines()))
    with pytest.raises(BadInput, match="is no table of measured placements"):
        read_table(path)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], "line 1: it is no JSON object with groups and profiles"),
        (["[1, 2]"], "line 1: it is no JSON object with groups and profiles"),
        (['{"groups": 2}'], "line 1: it is no JSON object with groups and profiles"),
        (["model,servers,workers"], "line 1: Expecting value"),
        (
            ['{"groups": 2, "profiles": {"ctc": 3}}'],
            "line 1: ctc: Input should be a dictionary or an instance of Profile",
        ),
        ([HEAD, '{"jobs": [{"model": "ctc", "workers": [0]'], "line 2: Invalid JSON"),
        ([HEAD, ROW, ROW.replace("0", "0.5", 1)], "line 3: jobs.0.workers.0: Input should be a valid integer"),
        ([HEAD, ROW, ROW.replace("ctc", "odd")], "line 3: odd has no profile there, or lies in no group"),
        ([HEAD, ROW.replace("3.5", "-3.5")], "line 2: a speed is no number above 0, at most 1e+12"),
        ([HEAD, ROW.replace("3.5", "1e308")], "line 2: a speed is no number above 0, at most 1e+12"),
        ([HEAD, ROW.replace("[0]", f"{[0] * 1001}")], "line 2: a job has more than 1,000 tasks of one role"),
    ],
)
def test_what_is_wrong_with_a_table_is_told_in_one_line_with_where(lines, told, tmp_path: Path):
    path = tmp_path / "table.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(BadInput) as raised:
        read_table(path)
    assert str(raised.value).startswith(f"{path} is no table of measured placements: {told}")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("groups", ["2.9", "true", '"2"', "NaN"])
def test_groups_are_counted_in_whole_numbers(groups, tmp_path: Path):
    path = tmp_path / "table.jsonl"
    path.write_text(HEAD)
    assert read_table(path).groups == 2
    path.write_text(json.dumps(json.loads(HEAD) | {"groups": json.loads(groups)}))
    with pytest.raises(BadInput, match=r"groups and .* profiles: give 1 to 10000 groups"):
        read_table(path)


def test_a_number_of_groups_that_is_none_is_refused(tmp_path: Path):
    path = tmp_path / "table.jsonl"
    path.write_text('{"groups": 1e999, "profiles": {}}')
    with pytest.raises(BadInput, match="is no table of measured placements"):
        read_table(path)


@pytest.mark.parametrize("wrong", [{"cpu": (-1.0, 0.0)}, {"cpu": (0.0, math.inf)}])
def test_cores_that_cannot_be_used_are_refused(wrong: dict[str, Any], tmp_path: Path):
    path, one = tmp_path / "table.jsonl", MeasuredJob("ctc", (0,), (1,), (1.0,))
    path.write_text("\n".join(MeasuredTable((MeasuredPlacement((replace(one, **wrong),)),), PROFILES, 2).lines()))
    with pytest.raises(BadInput, match="is no table of measured placements"):
        read_table(path)


def test_a_pipe_in_which_nobody_writes_is_refused(tmp_path: Path):
    os.mkfifo(tmp_path / "table.jsonl")
    with pytest.raises(BadInput, match="is no table of measured placements: not a file of data"):
        read_table(tmp_path / "table.jsonl")


def test_rows_of_unknown_models_and_groups_are_refused(tmp_path: Path):
    path = tmp_path / "table.jsonl"
    for job in (("nobody", (0,), (1,), (1.0,)), ("ctc", (0,), (2,), (1.0,))):
        path.write_text("\n".join(MeasuredTable((row(job),), PROFILES, 2).lines()))
        with pytest.raises(BadInput, match="line 2"):
            read_table(path)


@pytest.mark.parametrize("speeds", [(0.0,), (float("inf"),), (-1.0,)])
def test_speeds_that_cannot_be_are_refused(speeds: tuple[float, ...]):
    with pytest.raises(ValueError, match=r"speed"):
        read_row(row_line(row(("a", (0,), (1,), speeds))))


def test_a_job_without_speeds_is_refused():
    with pytest.raises(ValueError, match="lacks a role or its speeds"):
        read_row(row_line(row(("a", (0,), (1,), ()))))


def test_arrays_hold_every_task():
    where = arrays_of(row(("wlm", (0, 1), (1,), (4.0,)), ("ctc", (1,), (0,), (5.0,))), ("ctc", "wlm"))
    assert where.model.tolist() == [1, 0]
    assert where.job.tolist() == [0, 0, 0, 1, 1]
    assert where.role.tolist() == [0, 0, 1, 0, 1]
    assert where.group.tolist() == [0, 1, 1, 1, 0]


def test_load_is_what_other_jobs_use_on_the_worst_node():
    alone = row(("ctc", (0,), (1,), (10.0,)))
    beside = row(("ctc", (0,), (1,), (5.0,)), ("wlm", (1,), (1,), (3.0,)))
    points = load_points([alone, beside], PROFILES)
    wlm = PROFILES["wlm"]
    assert [(point.cpu, point.slowdown) for point in points["ctc"]] == [
        (0.0, 0.0),
        (wlm.cpu_worker + wlm.cpu_server, 1.0),
    ]
    assert points["wlm"] == []  # it was never alone


def test_lif_predicts_what_it_was_fitted_to():
    alone = [row((model, (0,), (0,), (10.0,))) for model in PROFILES]
    spread = [row((model, (0,), (1,), (10.0,))) for model in PROFILES]
    pairs = [
        row((one, (0,), at_one, (5.0,)), (two, (0,), at_two, (5.0,)))
        for one in PROFILES
        for two in PROFILES
        for at_one in ((0,), (1,))
        for at_two in ((0,), (1,))
    ]
    rows = alone + spread + pairs
    interference = fit_load(rows, PROFILES, quadratic=False)
    assert interference is not None
    speeds = SlowedSpeed(AloneSpeeds(rows), sorted(PROFILES), interference)
    errors = [np.abs(speeds.rates(arrays_of(each, sorted(PROFILES))) / 5.0 - 1) for each in pairs]
    assert np.mean(np.concatenate(errors)) < 0.2
