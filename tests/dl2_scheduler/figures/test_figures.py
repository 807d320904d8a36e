"""The paper's figures, drawn from runs that are as small as they can be."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.figures.lab import Lab
from dl2_scheduler.figures.registry import FIGURES, draw
from dl2_scheduler.figures.scale import OURS, PAPER, PAPER_LIKE, FigureScale
from dl2_scheduler.learning.actor import ActorSettings
from dl2_scheduler.learning.critic import CriticSettings
from dl2_scheduler.sim.catalogue import CATALOGUE
from dl2_scheduler.sim.shipped import shipped_speeds

SPEEDS = shipped_speeds()
SEED = 3  # whose random weights starve nobody
TINY = FigureScale(
    clusters=("4x8cpu,8gpu",),
    jobs=3,
    sequences=2,
    validation=1,
    imitated=2,
    epochs=1,
    ours=replace(
        OURS, lanes=1, softening=1.0, actor=ActorSettings(average=0.999), critic=CriticSettings(members=2, steps=5)
    ),  # so that it hardly learns: a policy that has learnt little starves jobs, which takes long
    updates=3,
    judge_every=1,
    paper=replace(PAPER, batch=8, replay=64),
    paper_updates=3,
    paper_judge_every=1,
    seeds=2,
    variations=(0.0, 0.5),
    errors=(0.0, 0.2),
    places=(2, 3),
    together=(1, 2),
)
CURVE = 4  # points: updates 0 to 3
ROWS = {
    "9": (8, "cluster policy jct_slots margin minus_drf_slots minus_drf_margin under_drf_percent"),
    "10": (2 * (2 + CURVE + CURVE + 1), "learner curve update jct_slots margin"),
    "13": (4 * 2, "policy variation_percent jct_slots margin under_drf_percent change_percent"),
    "14": (4 * 2, "policy estimate_error_percent jct_slots margin under_drf_percent change_percent"),
    "15": (2 * 2 * CURVE, "learner curve update jct_slots margin"),
    "16": (3 * 5, "teacher policy jct_slots margin under_teacher_percent"),
    "17": (2 * 2 + 2, "policy places jct_slots margin under_drf_percent"),
    "18": (2 * 2 * (CURVE + 1), "judged learner clusters update jct_slots margin"),
    "table2": (4, "without jct_slots jct_margin slowdown_percent slowdown_margin seeds"),
    "loss": (3 * 2, "loss policy jct_slots margin over_drf_percent"),
    "reward": (2 * (CURVE + 1), "judged reward update jct_slots margin"),
}


def lab_in(folder: Path, scale: FigureScale = TINY) -> Lab:
    return Lab(folder, SPEEDS, scale, SEED, lambda _: None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of all figures, so that they share runs."""
    return tmp_path_factory.mktemp("figures")


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_figure_is_tested() -> None:
    assert list(ROWS) == list(FIGURES)


@pytest.mark.slow
@pytest.mark.parametrize("number", FIGURES)
def test_picture_numbers_and_settings(number: str, folder: Path) -> None:
    picture = draw(number, lab_in(folder), folder)
    rows = rows_of(picture.with_suffix(".csv"))
    count, columns = ROWS[number]
    assert (len(rows), list(rows[0])) == (count, columns.split())
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert json.loads(picture.with_suffix(".json").read_text())["scale"]["jobs"] == TINY.jobs
    assert all(0 < float(row.get("jct_slots", 1)) < 1001 for row in rows)


@pytest.mark.slow
def test_drawn_again_trains_nothing(folder: Path) -> None:
    first = lab_in(folder)
    path = draw("reward", first, folder).with_suffix(".csv")
    before = path.read_text()
    again = lab_in(folder)
    draw("reward", again, folder)
    assert again.trained_runs == 0
    assert path.read_text() == before


@pytest.mark.slow
def test_learning_cut_off_goes_on_to_the_same(tmp_path: Path) -> None:
    whole = lab_in(tmp_path / "whole")
    straight = whole.trained(whole.paper(updates=4, judge_every=2)).curve
    lab = lab_in(tmp_path / "cut")
    recipe = lab.paper(updates=4, judge_every=2)
    run = lab.trained(recipe)
    judged = run.folder.path / "judged.json"
    judged.write_text(json.dumps({str(update): times for update, times in run.curve.items() if update < 4}))
    assert lab.trained(recipe).curve == straight


def test_other_settings_are_other_runs(tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    recipes = [lab.paper(), lab.paper(seed=1), lab.paper(teacher="fifo"), lab.paper(analytic=True), lab.ours()]
    names = {lab.named(recipe) for recipe in recipes} | {lab_in(tmp_path, replace(TINY, jobs=4)).named(lab.paper())}
    assert len(names) == len(recipes) + 1


def test_types_by_stage() -> None:
    recipe = lab_in(Path()).ours(stages=((0, ("dssm",)), (2, ("dssm", "wlm"))))
    assert [recipe.models(update) for update in (0, 1, 2, 9)] == [("dssm",)] * 2 + [("dssm", "wlm")] * 2


@pytest.mark.slow
def test_an_episode_under_way_keeps_its_jobs_when_other_types_come(tmp_path: Path) -> None:
    """Of the first type a job trains more epochs in two slots than one of the second has at all."""
    lab = lab_in(tmp_path, replace(TINY, jobs=6))
    recipe = lab.paper(stages=((0, ("dssm",)), (2, ("resnext-110",))), updates=4, judge_every=2)
    run = lab.trained(recipe)
    (site,) = recipe.learner(run.folder, lab._lessons(recipe, 2), SPEEDS, None)._sites
    assert site.cluster is not None
    lanes = site.cluster.lanes
    assert lanes.slot == 4
    assert {job.model for job in lanes.jobs[0]} == {"dssm"}
    assert lanes.done.max() > CATALOGUE["resnext-110"].epochs
    assert (lanes.done <= lanes.epochs).all()


@pytest.mark.parametrize("number", ["8", "table1", "nine"])
def test_unknown_number_is_told_what_there_is(number: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["figure", number, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert f"no figure {number}: give one of {', '.join(FIGURES)}" in result.output
    assert not (tmp_path / "out").exists()
    with pytest.raises(BadInput):
        draw(number, lab_in(tmp_path), tmp_path)


@pytest.mark.slow
def test_command_line(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dl2_scheduler.figures.scale.PAPER_LIKE", TINY)
    result = CliRunner().invoke(app, ["figure", "loss", "--out", str(folder)])
    assert (result.exit_code, result.stdout) == (0, f"{folder / 'loss.png'}\n")
    blocked = tmp_path / "file"
    blocked.write_text("")
    result = CliRunner().invoke(app, ["figure", "loss", "--out", str(blocked)])
    assert result.exit_code == 2
    assert "no folder" in result.output


def test_sizes_fit_each_other() -> None:
    assert PAPER_LIKE.sequences >= 10
    for updates, every in (
        (PAPER_LIKE.updates, PAPER_LIKE.judge_every),
        (PAPER_LIKE.paper_updates, PAPER_LIKE.paper_judge_every),
    ):
        assert updates % 3 == 0
        assert updates // 3 % every == 0
