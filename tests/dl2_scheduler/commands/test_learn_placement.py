"""`dl2 learn-placement` makes a folder that places, explains and can be followed; what is wrong is told before."""

import json
import os

import pytest
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.commands.simulation.learning import learn_placement
from dl2_scheduler.policies.learnt.placer_files import PLACER_FILE, SPEEDS_FILE, open_placer
from dl2_scheduler.policies.placement.registry import make_placement
from dl2_scheduler.policies.placement.speed_model import PROFILES_FILE, open_speed_model, save_speed_model
from tests.dl2_scheduler.policies.placement.fitted import MODELS, drawn_model
from tests.dl2_scheduler.policies.placement.test_placement_policies import job, view_of

SMALL = "--load 2 --jobs 6 --sequences 1 --tasks 1"


@pytest.fixture(autouse=True)
def one_sequence(monkeypatch):
    monkeypatch.setattr(learn_placement, "_COMPARED", range(1))


@pytest.fixture
def model(tmp_path):
    save_speed_model(tmp_path / "model", drawn_model())
    return tmp_path / "model"


def invoke(line: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, line.split())
    return result.exit_code, result.output


@pytest.mark.slow
def test_a_run_of_a_model_places_and_explains(model, tmp_path):
    run = tmp_path / "run"
    status, output = invoke(f"learn-placement --model {model} --out {run} --cluster 3x16cpu,2gpu --updates 1 {SMALL}")
    assert status == 0, output
    assert f"learnt:{run}" in output
    policy = make_placement(f"learnt:{run}")
    assert policy.knows.models == MODELS
    view = view_of([job(0, "ctc"), job(1, "wlm")], nodes=3)
    places = policy.place(view)
    assert set(places.groups) == {0, 1}
    assert "slowdown" in policy.explain(view, places, ["node-1", "node-2", "node-3"])[0]
    assert json.loads((run / "settings.json").read_text())["settings"]["model"] == str(model)
    status, output = invoke(f"learn-placement --model {model} --out {run} --cluster 3x16cpu,2gpu {SMALL}")
    assert (status, f"{run} holds a run (placer.npz): name another folder" in output) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize("world", ["mechanistic", "formula"])
def test_a_run_of_a_world_begins_with_speeds_that_are_fitted_to_it(world, tmp_path):
    status, output = invoke(f"learn-placement --world {world} --out {tmp_path} --samples 20 --updates 0 {SMALL}")
    assert status == 0, output
    assert open_placer(tmp_path).models == MODELS
    assert (open_speed_model(tmp_path).interference is not None) == (world == "mechanistic")
    compared = f"load-balance,learnt:{tmp_path},local-search:{tmp_path}"
    assert invoke(f"evaluate --world {world} --placement {compared} --sequences 1")[0] == 0


@pytest.mark.slow
def test_an_interrupted_run_leaves_the_best_so_far(model, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "dl2_scheduler.learning.placement.placer_run.improve", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    run = tmp_path / "run"
    status, output = invoke(f"learn-placement --model {model} --out {run} --cluster 3x16cpu,2gpu {SMALL}")
    assert (status, f"stopped: the best policy so far is learnt:{run}" in output) == (130, True), output
    assert make_placement(f"learnt:{run}").knows.speeds is not None


NODES = "--cluster 3x16cpu,2gpu"


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("", "give --model, or --world"),
        ("--world formula --model {model}", "give --model, or --world"),
        ("--model nowhere --cluster 2x8slots", "nowhere is no folder: give a folder that dl2 fit --places has written"),
        ("--model {model}", "give --cluster, the nodes that --model is to place jobs on"),
        ("--model {model} --cluster 2x8memory", "give cpu or slots, and gpu"),
        ("--model {model} --cluster 2x8cpu,8slots", "give cpu or slots, and gpu"),
        ("--model {model} --cluster 2x7.5cpu", "give whole numbers"),
        ("--model {model} --cluster 1x4slots", "fit nowhere: give larger nodes"),
        ("--model {model} --cluster 2x8slots --worker fast", "--worker is fast: give amounts of cpu"),
        ("--model {model} --cluster 2x8slots --load x", "--load is x: give numbers joined by commas"),
        ("--model {model} --cluster 2x8slots --load 2,2", "give each load once"),
        ("--model {model} --cluster 2x8slots --load -1", "give a positive number"),
        ("--model {model} --cluster 3x16cpu,2gpu --interval never", "never is no length of time"),
        ("--world measured", "give --model MODEL, which dl2 fit --places MODEL --table FILE fits to a table"),
        ("--world formula --worker 2cpu", "leave them out with --world"),
        ("--world formula --cluster 2x3cpu", "give an even number of cpu"),
    ],
)
def test_what_is_wrong_is_told_before_the_folder_is_made(line, wrong, model, tmp_path):
    run = tmp_path / "run"
    status, output = invoke(f"learn-placement --out {run} {line.format(model=model)}")
    assert (status, wrong in output) == (2, True), output
    assert not run.exists()


@pytest.mark.parametrize("lacks", [SPEEDS_FILE, PROFILES_FILE])
def test_a_model_that_lacks_what_learning_takes_is_refused(lacks, model, tmp_path):
    (model / lacks).unlink()
    status, output = invoke(f"learn-placement --model {model} --out {tmp_path / 'run'} {NODES}")
    assert (status, "learning takes speeds.npz and profiles.json" in output) == (2, True), output


def test_a_folder_of_another_run_or_that_cannot_be_written_is_refused(model, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for name in ("agents.npz", "policy.npz"):
        (run / name).touch()
        status, output = invoke(f"learn-placement --model {model} --out {run} {NODES}")
        assert (status, f"holds a run ({name})" in output) == (2, True), output
    assert not (run / PLACER_FILE).exists()
    (tmp_path / "file").touch()
    status, output = invoke(f"learn-placement --model {model} --out {tmp_path / 'file'} {NODES}")
    assert (status, f"{tmp_path / 'file'} cannot be the folder of a run (File exists)" in output) == (2, True), output
    if os.geteuid():
        run.chmod(0o500)
        status, output = invoke(f"learn-placement --model {model} --out {run / 'in'} {NODES}")
        assert (status, "Permission denied" in output) == (2, True), output


@pytest.mark.parametrize(
    ("file", "told"),
    [
        (
            "placer.npz",
            "a placement policy, which says where tasks run: give it as --placement learnt:{run} (placer.npz)",
        ),
        ("agents.npz", "agents that place, which say where tasks run: give them as --placement agents:{run}"),
        ("chic.npz", "a policy of Chic: give it as --policy chic:{run} to dl2 simulate or evaluate, with --pool"),
        ("speeds.npz", "a model of speeds, for a planner that says where tasks run: --placement local-search:{run}"),
    ],
)
@pytest.mark.parametrize(
    "line",
    [
        "learn --from {run}",
        "serve --slots 2x8 --policy dl2:{run} --folder {run}-state",
        "serve --slots 2x8 --policy dl2:{run} --learn --folder {run}-state",
    ],
)
def test_a_folder_of_another_kind_is_named_where_counts_are_learnt(line, file, told, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / file).touch()
    (run / "settings.json").write_text('{"settings": {"world": "formula"}}')
    status, output = invoke(line.format(run=run))
    assert (status, f"it holds {told.format(run=run)}" in output, "bootstrap" in output) == (2, True, False), output


@pytest.mark.parametrize("lies", [SPEEDS_FILE, PROFILES_FILE])
def test_fitted_speeds_of_another_folder_are_not_overwritten(lies, model, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / lies).write_bytes((model / lies).read_bytes())
    for jobs in (f"--model {model}", "--world formula"):
        status, output = invoke(f"learn-placement {jobs} --out {other} {NODES}")
        assert (status, f"holds fitted speeds ({lies}), which would be lost" in output) == (2, True), output
    assert (other / lies).read_bytes() == (model / lies).read_bytes()
    assert not (other / "settings.json").exists()
