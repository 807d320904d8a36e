"""A run's folder keeps what was learnt: the same places and speeds come back, and wrong files are refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.view import check_placement
from dl2_scheduler.learning.placement.imitation import PlacerNet
from dl2_scheduler.learning.placement.reward_model import FitSettings, fit_pooled
from dl2_scheduler.policies.learnt.placer_files import PLACER_FILE, SPEEDS_FILE, PlacerRun, open_placer, save_placer
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.placed.samples import draw_samples
from dl2_scheduler.sim.placed.scenario import Scenario

SCENARIO = Scenario.harmony(3.0)
MODELS = tuple(sorted(SCENARIO.profiles))
SAMPLES = draw_samples(SCENARIO.machines, SCENARIO.profiles, SCENARIO.world, 8, 0)


class Watching:
    """A policy that lets another one decide, and keeps what it saw."""

    def __init__(self, policy):
        self.policy, self.views = policy, []

    def place(self, view):
        self.views.append(view)
        return self.policy.place(view)


@pytest.fixture(scope="module")
def learnt() -> PlacerRun:
    torch.manual_seed(0)
    speeds = fit_pooled(SAMPLES, SCENARIO.profiles, 6, FitSettings(epochs=1))
    return PlacerRun(MODELS, PlacerNet(len(MODELS)).policy(), speeds)


def test_the_same_comes_back(learnt, tmp_path):
    save_placer(tmp_path / "run", learnt)
    found = open_placer(tmp_path / "run")
    jobs = SCENARIO.jobs(0)[:12]
    times = [SCENARIO.completion_times(FixedDemand(), each, jobs) for each in (learnt.placer, learnt, found)]
    assert times[0].tolist() == times[1].tolist() == times[2].tolist()
    for where in SAMPLES.clusters:
        assert found.speeds_in(MODELS).rates(where) == pytest.approx(learnt.speeds.rates(where), rel=1e-6)


def test_a_run_may_lack_its_speeds(learnt, tmp_path):
    save_placer(tmp_path, replace(learnt, speeds=None))
    assert open_placer(tmp_path).speeds_in(MODELS) is None


def test_models_are_known_by_their_names(learnt):
    """A cluster that numbers models in another way, and has one that the run does not know, gets the same places."""
    watching = Watching(learnt.placer)
    SCENARIO.completion_times(FixedDemand(), watching, SCENARIO.jobs(0)[:12])
    others = ("another", *reversed(MODELS))
    for view in watching.views:
        renamed = replace(view.placed, model=np.array([others.index(MODELS[each]) for each in view.placed.model]))
        assert learnt.place(replace(view, models=others, placed=renamed)) == learnt.placer.place(view)
    where = SAMPLES.clusters[0]
    renamed = replace(where, model=np.array([others.index(MODELS[each]) for each in where.model]))
    assert learnt.speeds_in(others).rates(renamed) == pytest.approx(learnt.speeds.rates(where))


def test_a_job_of_an_unknown_model_is_placed_and_not_felt(learnt):
    watching = Watching(learnt.placer)
    SCENARIO.completion_times(FixedDemand(), watching, SCENARIO.jobs(0)[:12])
    view = watching.views[0]
    unknown = replace(view, models=("another",) * len(MODELS))
    placed = learnt.place(unknown)
    assert placed.groups
    check_placement(unknown, placed)
    where = SAMPLES.clusters[0]
    first = np.where(np.arange(len(where.model)) == 0, len(MODELS), where.model)
    rates = learnt.speeds_in((*MODELS, "another")).rates(replace(where, model=first))
    alone = learnt.speeds.rates(where.of_tasks(where.job != 0))
    assert rates[0] == 0
    assert rates[1:] == pytest.approx(alone[1:])


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r"no placement policy in .*nowhere"):
        open_placer(tmp_path / "nowhere")
    (tmp_path / "policy.npz").write_bytes(b"")
    with pytest.raises(BadInput, match="learnt how many tasks jobs get, not where they go"):
        open_placer(tmp_path)


@pytest.mark.parametrize("file", [PLACER_FILE, SPEEDS_FILE])
def test_damaged_files_are_refused(learnt, tmp_path, file):
    save_placer(tmp_path, learnt)
    whole = (tmp_path / file).read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], whole[:1000] + b"0000" + whole[1004:]):
        (tmp_path / file).write_bytes(damaged)
        with pytest.raises(BadInput, match=r"no (placement policy|model of speeds) in"):
            open_placer(tmp_path)


@pytest.mark.parametrize("file", [PLACER_FILE, SPEEDS_FILE])
def test_arrays_that_do_not_fit_are_refused(learnt, tmp_path, file):
    save_placer(tmp_path, learnt)
    with np.load(tmp_path / file) as opened:
        arrays = dict(opened)
    name = next(each for each in arrays if each.endswith("0.weight") or each == "hidden.weight")
    for wrong in (arrays[name][1:], arrays[name].astype(float), arrays[name] * np.float32(np.nan)):
        np.savez(tmp_path / file, **{**arrays, name: wrong})
        with pytest.raises(BadInput, match=r"damaged, or of another version: .*weight"):
            open_placer(tmp_path)
    for models in ('["a"]', '["a", "a"]', "7"):
        np.savez(tmp_path / file, **{**arrays, "models": np.array(models)})
        with pytest.raises(BadInput):
            open_placer(tmp_path)


def test_files_of_two_runs_are_refused(learnt, tmp_path):
    save_placer(tmp_path, learnt)
    save_placer(tmp_path / "other", replace(learnt, models=(*MODELS[1:], "another")))
    (tmp_path / "other" / SPEEDS_FILE).rename(tmp_path / SPEEDS_FILE)
    with pytest.raises(BadInput, match="of different runs"):
        open_placer(tmp_path)
