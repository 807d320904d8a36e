"""Harmony's figures of interference, drawn; their numbers are those that the world is held to."""

import csv
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.figures.placement.registry import HARMONY_FIGURES, draw_harmony


def rows(number: str, folder: Path) -> list[dict[str, str]]:
    assert draw_harmony(number, folder).read_bytes().startswith(b"\x89PNG")
    with (folder / f"{number}.csv").open() as file:
        return list(csv.DictReader(file))


def test_six_jobs_lose_a_third(tmp_path):
    lost = {row["model"]: float(row["lost_percent"]) for row in rows("harmony-1", tmp_path)}
    assert np.mean(list(lost.values())) == pytest.approx(33.0, abs=0.5)
    assert max(lost, key=lost.get) == "resnext-110"


def test_all_pairs_are_drawn_the_mildest_first(tmp_path):
    lost = [float(row["lost_percent"]) for row in rows("harmony-2", tmp_path)]
    assert len(lost) == 15
    assert lost == sorted(lost)


def test_the_better_of_two_policies_depends_on_the_model(tmp_path):
    found = {(row["with"], row["way"]): float(row["ctc"]) + float(row["other"]) for row in rows("harmony-4", tmp_path)}
    assert found["vgg-16", "packed"] > found["vgg-16", "spread"]
    assert found["resnext-110", "packed"] < found["resnext-110", "spread"]


def test_more_jobs_beside_mean_less_speed(tmp_path):
    for model in ("vgg-16", "resnext-110"):
        speeds = [float(row["speed"]) for row in rows("harmony-5", tmp_path) if row["model"] == model]
        assert speeds[0] == 1
        assert speeds == sorted(speeds, reverse=True)


def test_the_command_draws_them_and_refuses_speeds(tmp_path):
    run = CliRunner().invoke
    assert run(app, ["figure", "harmony-5", "--out", str(tmp_path)]).exit_code == 0
    assert (tmp_path / "harmony-5.png").exists()
    table = tmp_path / "speeds.csv"
    table.write_text("model,servers,workers,samples_per_second\nctc,1,1,10\nctc,2,2,20\n")
    refused = run(app, ["figure", "harmony-5", "--out", str(tmp_path), "--speeds", str(table)])
    assert refused.exit_code != 0
    assert "leave it out" in (refused.output + str(refused.exception))
    assert len(HARMONY_FIGURES) == 10
