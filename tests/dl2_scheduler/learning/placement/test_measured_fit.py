"""Fitting to measured placements: what planners get of it, how errors are found, and the table that is shipped."""

import numpy as np
import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.measured import MeasuredJob, MeasuredPlacement, merged
from dl2_scheduler.cluster.hardware.measured_table import MeasuredTable, arrays_of
from dl2_scheduler.commands.cluster.fit_places import fit_places
from dl2_scheduler.learning.placement.measured_fit import errors_of, fit_measured, folds, samples_of, with_profiles
from dl2_scheduler.policies.learnt.placer_files import PLACER_FILE, write_named
from dl2_scheduler.policies.placement.speed_model import open_speed_model
from dl2_scheduler.sim.placed.measured.shipped_table import shipped_table

MODELS = ("a", "b")
ALONE = {"a": 100.0, "b": 10.0}
PLACES = [((worker,), (server,)) for worker in (0, 1) for server in (0, 1)]


def rows() -> list[MeasuredPlacement]:
    """All pairs on two nodes, where a job has what is left of its worker's node."""
    found = [MeasuredPlacement((MeasuredJob(model, *at, (ALONE[model],)),)) for model in MODELS for at in PLACES]
    for one in MODELS:
        for other in MODELS:
            for here in PLACES:
                for there in PLACES:
                    part = 0.5 if here[0] == there[0] else 1.0
                    jobs = ((one, here), (other, there))
                    each = (MeasuredJob(model, *at, (ALONE[model] * part,)) for model, at in jobs)
                    found.append(MeasuredPlacement(tuple(each)))
    return found


def test_samples_are_the_medians_of_repeats():
    one = MeasuredPlacement((MeasuredJob("b", (0,), (1,), (9.0, 12.0, 10.0)),))
    samples = samples_of([one], MODELS)
    assert samples.rates[0].tolist() == [10.0]
    assert samples.clusters[0].model.tolist() == [1]


def test_models_without_a_profile_get_their_usual_speed():
    profiles = with_profiles(rows(), {})
    assert profiles["b"].batch / profiles["b"].step_s == pytest.approx(np.median([10.0] * 44 + [5.0] * 32), rel=0.5)
    known = {"a": profiles["b"]}
    assert with_profiles(rows(), known)["a"] is profiles["b"]


def test_the_fit_learns_what_sharing_a_node_costs():
    fitted = fit_measured(rows(), with_profiles(rows(), {}), 2, updates=400)
    errors = errors_of(fitted, rows(), MODELS)
    assert np.mean([*errors["a"], *errors["b"]]) < 0.1
    assert fitted.interference is not None


def test_folds_leave_each_placement_of_several_jobs_out_once():
    whole = rows()
    parts = folds(whole, 5)
    assert sorted(id(row) for part in parts for row in part) == sorted(id(row) for row in whole if len(row.jobs) > 1)
    assert {len(part) for part in parts} <= {12, 13}


DIFFERENT = merged(rows())
"""Of all the rows those that differ by more than the numbers of nodes: 24."""


def written(path, whole):
    table = MeasuredTable(tuple(whole), with_profiles(whole, {}), 2)
    path.write_text("".join(f"{line}\n" for line in table.lines()))
    return path


def test_too_few_placements_are_refused_before_anything_is_fitted(tmp_path, monkeypatch):
    monkeypatch.setattr("dl2_scheduler.learning.placement.measured_fit.fit_measured", None)
    with pytest.raises(BadInput, match="19 measured placements are too few to fit speeds to: 20 at least"):
        fit_places([], written(tmp_path / "table", DIFFERENT[:19]), tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("count", [20, 24])
def test_as_few_as_are_enough_are_fitted_and_judged(count, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("dl2_scheduler.learning.placement.measured_fit.UPDATES", 5)
    fit_places([], written(tmp_path / "table", DIFFERENT[:count]), tmp_path / "model")
    assert f"of the {count} placements" in capsys.readouterr().out
    assert open_speed_model(tmp_path / "model").models == MODELS


def test_a_folder_that_cannot_be_made_is_told_before_anything_is_fitted(tmp_path, monkeypatch):
    monkeypatch.setattr("dl2_scheduler.learning.placement.measured_fit.fit_measured", None)
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        fit_places([], written(tmp_path / "table", rows()), tmp_path / "file")


def test_speeds_of_other_types_are_not_written_beside_a_policy(tmp_path, monkeypatch):
    monkeypatch.setattr("dl2_scheduler.learning.placement.measured_fit.fit_measured", None)
    run = tmp_path / "run"
    run.mkdir()
    write_named(run / PLACER_FILE, ("lstm", "wide"), {})
    with pytest.raises(BadInput, match=r"placer\.npz was learnt for lstm, wide, and what was measured is of .*: give"):
        fit_places([], written(tmp_path / "table", rows()), run)
    assert [file.name for file in run.iterdir()] == [PLACER_FILE]


def test_a_table_is_fitted_into_a_folder_that_planners_open(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("dl2_scheduler.learning.placement.measured_fit.UPDATES", 5)
    fit_places([], written(tmp_path / "table.jsonl", rows()), tmp_path / "model")
    model = open_speed_model(tmp_path / "model")
    assert model.models == MODELS
    assert (model.rates(arrays_of(rows()[-1], MODELS)) > 0).all()
    assert f"lif-own:{tmp_path / 'model'}" in capsys.readouterr().out


def test_the_shipped_table_is_whole():
    table = shipped_table()
    assert sum(len(row.jobs[0].speeds) >= 3 for row in table.placements) >= 300
    assert len({row.key for row in table.placements}) == len(table.placements)
    assert table.about["licence"] == "CC BY 4.0"
    assert {job.model for row in table.placements for job in row.jobs} == set(table.models)
