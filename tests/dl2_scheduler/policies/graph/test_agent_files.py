"""A run's folder keeps agents: the same places come back, types go by their names, and wrong files are refused."""

from dataclasses import replace

import numpy as np
import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.view import check_placement
from dl2_scheduler.policies.learnt.array_files import read_arrays
from dl2_scheduler.policies.learnt.graph.agent_files import AGENTS_FILE, open_agents, save_agents
from dl2_scheduler.policies.placement.registry import make_placement
from dl2_scheduler.policies.placement.speed_model import PROFILES_FILE
from tests.dl2_scheduler.policies.placement.fitted import MODELS, PROFILES, drawn_agents
from tests.dl2_scheduler.policies.placement.test_placement_policies import job, view_of


@pytest.fixture
def run(tmp_path):
    save_agents(tmp_path / "run", drawn_agents(), PROFILES)
    return tmp_path / "run"


def some_view():
    kinds = [job(0, "ctc"), job(1, "wlm", 2, 2), job(2, "vgg-16", 1, 2)]
    return view_of(kinds, tasks=[(0, 0, 0), (0, 1, 1)])


def test_the_same_comes_back_and_types_go_by_their_names(run):
    view, agents = some_view(), drawn_agents()
    placed = agents.place(view)
    assert set(placed.groups) == {1, 2}
    named = make_placement(f"agents:{run}")
    others = ("another", *reversed(view.models))
    renamed = np.array([others.index(view.models[each]) for each in view.placed.model])
    other = replace(view, models=others, placed=replace(view.placed, model=renamed))
    assert open_agents(run).models == MODELS == view.models
    assert named.place(view) == named.place(other) == placed
    assert named.explain(view, placed, ["a", "b", "c", "d", "e", "f"])[1].endswith(f" by agents:{run}")


def test_a_job_of_an_unknown_model_is_placed_and_not_felt(run):
    view, named = some_view(), make_placement(f"agents:{run}")
    unknown = replace(view, models=("another", *view.models[1:]))
    assert named.unknown(unknown.models) == ["another"]
    seen = replace(view, placed=view.placed.of_tasks(np.zeros(0, dtype=np.int64)))
    assert view.models[0] == "ctc"
    places = named.place(unknown)
    check_placement(unknown, places)
    assert set(places.groups) == {1, 2}
    assert set(named.place(replace(unknown, missing=seen.missing, placed=seen.placed)).groups) >= {1, 2}


def test_nodes_without_gpus_have_room(run):
    view = some_view()
    view.free[:, 1] = 0.0
    view.demand[..., 1] = 0.0
    none = replace(view.machines, nodes=tuple(without_gpus(each) for each in view.machines.nodes))
    view = replace(view, machines=none)
    with np.errstate(all="raise"):
        assert set(make_placement(f"agents:{run}").place(view).groups) == {1, 2}


def without_gpus(hardware):
    return replace(hardware, sockets=tuple(replace(each, gpus=0) for each in hardware.sockets))


def _written(file, **arrays):
    np.savez(file, **arrays)


@pytest.mark.parametrize(
    ("damage", "wrong"),
    [
        (lambda arrays: arrays.pop("models"), "no agents in"),
        (lambda arrays: arrays.update(models=np.array('["ctc"]')), "has the shape"),
        (lambda arrays: arrays.pop("tell.weight"), "it has no tell.weight"),
        (lambda arrays: arrays.update({"out.weight": arrays["out.weight"].astype(float)}), "instead of float32"),
        (lambda arrays: arrays["wait.bias"].fill(np.nan), "weights are not finite"),
        (lambda arrays: arrays.update({"tell.bias": np.zeros(0, np.float32)}), "has the shape"),
    ],
)
def test_damaged_files_are_refused(damage, wrong, run):
    arrays = read_arrays(run / AGENTS_FILE)
    damage(arrays)
    _written(run / AGENTS_FILE, **arrays)
    with pytest.raises(BadInput, match=wrong):
        make_placement(f"agents:{run}")


def test_profiles_of_another_run_are_refused_and_none_are_needed(run, tmp_path):
    fewer = {name: PROFILES[name] for name in MODELS[1:]}
    save_agents(tmp_path / "other", drawn_agents(), fewer)
    (tmp_path / "other" / PROFILES_FILE).rename(run / PROFILES_FILE)
    with pytest.raises(BadInput, match="knows other models than the policy"):
        make_placement(f"agents:{run}")
    (run / PROFILES_FILE).unlink()
    assert make_placement(f"agents:{run}").knows.profiles == {}
