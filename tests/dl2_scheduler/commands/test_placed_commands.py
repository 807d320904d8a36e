"""Placement policies on the command line: compared in a world, refused before anything runs."""

import json
import re

import pytest
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.policies.placement.speed_model import save_speed_model
from dl2_scheduler.sim.arrivals import Pattern, generate
from dl2_scheduler.sim.placed.measured.shipped_table import SHIPPED_TABLE
from dl2_scheduler.sim.trace import write_trace
from tests.dl2_scheduler.policies.placement.fitted import drawn_model


def invoke(line: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, line.split())
    return result.exit_code, result.output


def test_placements_are_compared_on_the_same_sequences(tmp_path):
    save_speed_model(tmp_path / "fitted", drawn_model())
    names = f"load-balance,lif-own-shortest:{tmp_path}/fitted"
    line = f"evaluate --world formula --placement {names} --sequences 2 --load 4 --seed 3 --bounds"
    status, output = invoke(f"{line} --json")
    told = json.loads(output)
    first, second = told["placements"]
    assert (status, told["seeds"], told["world"]) == (0, [3, 4], "formula")
    assert first["difference"] == {"mean": 0.0, "margin": 0.0}
    means = [sum(each["sequences"]) / 2 for each in (first, second)]
    assert second["difference"]["mean"] == pytest.approx(means[1] - means[0])
    assert all(max(bound) <= min(own) for bound, *own in zip(told["bounds"], first["sequences"], strict=True))
    status, output = invoke(line)
    assert (status, "mean ± half the 95% interval" in output, "LP bound" in output) == (0, True, True)


def test_one_placement_is_simulated(tmp_path):
    line = "simulate --world apart --placement best-fit --cluster 4x16cpu,4gpu --policy drf --load 1"
    status, output = invoke(f"{line} --json")
    told = json.loads(output)
    assert (status, told["placement"], len(told["jobs"])) == (0, "best-fit", 60)
    assert told["jct_intervals"] == pytest.approx(sum(job["jct_intervals"] for job in told["jobs"]) / 60)
    assert invoke(line)[1].startswith("best-fit in the apart world: 60 jobs, 4 nodes, intervals of 20 min\n")


@pytest.fixture
def quick_fit(monkeypatch):
    monkeypatch.setattr("dl2_scheduler.learning.placement.measured_fit.UPDATES", 5)


@pytest.mark.slow
def test_a_measured_world_plays_the_shipped_table_or_ones_own(quick_fit, tmp_path):
    line = "evaluate --world measured --placement load-balance,best-fit --sequences 1 --seed 2 --json"
    status, output = invoke(line)
    told = json.loads(output.partition("\n")[2])
    assert (status, told["world"], told["table"]) == (0, "measured", None), output
    own = tmp_path / "own.jsonl"
    head, *rows = SHIPPED_TABLE.read_text().splitlines()
    own.write_text("\n".join([head, *(row for row in rows if '"lstm"' not in row and '"mlp"' not in row)]))
    status, output = invoke(f"simulate --world measured --table {own} --placement best-fit --cluster 2x4slots --json")
    told = json.loads(output.partition("\n")[2])
    assert (status, told["table"], told["cluster"]) == (0, str(own), "2x4slots"), output
    assert {job["model"] for job in told["jobs"]} == {"device", "digits", "table", "wide"}
    assert {job["workers"] for job in told["jobs"]} == {1}


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("simulate --load 3", "--load: of a world alone: give --world too"),
        ("evaluate --world formula --traces a", "--traces: a world has its own: leave it out"),
        ("simulate --world formula --record a --placement best-fit", "--record: a world has its own"),
        ("simulate --world formula", "spread counts tasks and knows no places: give load-balance here"),
        ("simulate --world formula --placement a,b", "--placement: give one name, or compare"),
        ("evaluate --world formula --placement best-fit,best-fit", "best-fit again: give each name once"),
        ("evaluate --world formula --placement best-fit,nothing", "unknown placement nothing: give one of"),
        ("evaluate --world formula --placement lif-lb:nowhere", "nowhere is no folder"),
        ("evaluate --world formula --placement best-fit --policies nobody", "unknown policy nobody"),
        ("evaluate --world formula --placement best-fit --scenario vl2 --cluster 1x2cpu", "servers of its own"),
        ("evaluate --world formula --placement best-fit --server-type i", "give --scenario fat-tree, vl2 or bcube"),
        ("evaluate --world formula --placement best-fit --cluster 2x3cpu", "give an even number of cpu"),
        ("evaluate --world formula --placement best-fit --cluster 2x8cpu", "fit nowhere: give larger nodes"),
        ("evaluate --world formula --placement best-fit --load 1e-5", "give 0.0012 or more"),
        ("evaluate --world formula --placement best-fit --load 0", "give a positive number"),
        ("evaluate --world measured --placement best-fit --scenario vl2", "what was measured has no network"),
        ("evaluate --world measured --placement best-fit --table x", "x is no table of measured placements"),
        ("evaluate --world measured --placement best-fit --cluster 2x8memory", "give cpu or slots"),
        ("evaluate --world measured --placement best-fit --cluster 1x1slots", "fit nowhere: give larger nodes"),
        ("evaluate --world measured --placement best-fit --load -1", "give a positive number"),
        ("evaluate --world formula --placement best-fit --table x", "--table: of --world measured"),
        ("evaluate --placement best-fit --policies drf --traces x", "best-fit places tasks .* give --world"),
        ("evaluate", "give --policies and --traces, or --world"),
    ],
)
def test_what_is_wrong_is_told_before_anything_runs(line, wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_trace(tmp_path / "x", generate(Pattern.UNIFORM, 1, 1, {"dssm": 1}))
    status, output = invoke(line)
    assert status == 2
    assert re.search(wrong, output), output
