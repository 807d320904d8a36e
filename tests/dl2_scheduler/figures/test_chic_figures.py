"""Chic's figures, drawn from runs that are as small as they can be."""

import csv
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.figures.chic.completion import gain_of
from dl2_scheduler.figures.chic.lab import BOUND, ChicLab
from dl2_scheduler.figures.chic.pool_learning import first_training
from dl2_scheduler.figures.chic.registry import CHIC_FIGURES, draw_chic
from dl2_scheduler.figures.chic.scale import CHIC, LEARNERS, OPTIMUS, RULES, ChicScale
from dl2_scheduler.figures.registry import check_number
from dl2_scheduler.sim.events.worlds import formula, table

TINY = ChicScale(jobs=4, training=6, validation=2, test=2, rates=(0.9, 1.8), judged=(1.8,), seeds=2, iterations=2)
COMPLETION = "rate policy act_seconds under_optimus_600_percent margin under_optimus_events_percent events_margin"
ROWS = {
    "chic-headroom": (2 * 10, COMPLETION),
    "chic-4a": (2 * 10 + 2 + 6, COMPLETION),
    "chic-4b": (5 * 51, "policy percent_of_jobs seconds"),
    "chic-4c": (2 * 6, COMPLETION),
    "chic-5a": (7, "policy ms_for_all margin ms_a_decision"),
    "chic-5b": (3 * (7 + 4), "change_seconds policy tick_seconds act_seconds margin"),
    "chic-6a": (2, "iteration bound mean_return decisions"),
    "chic-6b": (2 * 2, "learner iteration act_seconds"),
    "chic-6c": (2, "iteration bound mean_return decisions"),
    "chic-6d": (2 * 2, "learner iteration act_seconds"),
    "chic-7a": (2 * 2, "learner W act_seconds margin"),
    "chic-7b": (2 * 2 * 3, "learner rate act_seconds margin"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of all figures, so that they share runs."""
    return tmp_path_factory.mktemp("figures")


def test_every_figure_is_tested() -> None:
    assert list(ROWS) == list(CHIC_FIGURES)


@pytest.mark.slow
@pytest.mark.parametrize("number", CHIC_FIGURES)
def test_picture_numbers_and_settings(number: str, folder: Path) -> None:
    picture = draw_chic(number, ChicLab(folder, formula(), TINY, 0, lambda _: None), folder)
    with (folder / f"{number}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    count, columns = ROWS[number]
    assert len(rows) == count
    assert " ".join(rows[0]) == columns
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert json.loads((folder / f"{number}.json").read_text())["world"] == "formula"


@pytest.mark.slow
def test_a_run_is_learnt_once_and_in_its_own_world(tmp_path: Path) -> None:
    told: list[str] = []
    settings = TINY.learner(CHIC)
    first, again = (ChicLab(tmp_path, formula(), TINY, 0, told.append).learnt(settings, 1.8, 0) for _ in range(2))
    assert len(told) == 1
    assert first.run.curve == again.run.curve
    ChicLab(tmp_path, table(), TINY, 0, told.append).learnt(settings, 1.8, 0)
    assert len(told) == 2
    assert len(list((tmp_path / "chic-runs").glob("*.npz"))) == 2


def test_nobody_is_under_the_bound_and_all_are_judged_by_the_same_jobs(tmp_path: Path) -> None:
    lab = ChicLab(tmp_path, formula(), TINY, 0, lambda _: None)
    bound = lab.times(BOUND, 1.8)
    for name in RULES:
        assert (lab.times(name, 1.8) >= bound - 1e-6).all()


def test_no_seed_learns_from_sequences_that_policies_are_judged_by() -> None:
    training = [(first_training(seed), first_training(seed) + 1000) for seed in range(2000)]
    assert all(end <= start for (_, end), (start, _) in pairwise(training))
    line = "learn-chic --out x --sequences 1001"  # more would be those of the next seed, and at last these
    assert CliRunner().invoke(app, line.split()).exit_code == 2
    for judged in (800_000, 900_000):  # of validation, and of the test
        assert not any(first < judged + 100 and judged < end for first, end in training)


def test_a_gain_is_paired() -> None:
    baseline = np.array([[100.0, 300.0], [500.0, 700.0]])
    under, margin = gain_of(baseline - 40.0, baseline)
    assert (under, margin) == (pytest.approx(10.0), pytest.approx(0.0))
    assert gain_of(baseline, baseline) == (0.0, 0.0)


def test_learners_have_names_and_ours_come_first() -> None:
    assert list(LEARNERS)[:2] == ["Chic", "Chic-Pair"]
    assert OPTIMUS in RULES
    assert all(LEARNERS[name].pairs == ("Pair" in name) for name in LEARNERS)


@pytest.mark.slow
def test_the_command_draws_and_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dl2_scheduler.figures.chic.scale.ChicScale", lambda: TINY)
    found = CliRunner().invoke(app, ["figure", "chic-headroom", "--out", str(tmp_path)])
    assert found.exit_code == 0
    assert found.stdout.strip() == str(tmp_path / "chic-headroom.png")
    with pytest.raises(BadInput, match="chic-4a"):
        check_number("chic-9")
