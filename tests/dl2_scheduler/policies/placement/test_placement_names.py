"""Placement policies by their names: all that decide keep the contract, and what is wrong is said."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.view import Places, check_placement
from dl2_scheduler.policies.learnt.graph.agent_files import save_agents
from dl2_scheduler.policies.learnt.placer import LearntPlacer, placer_shapes
from dl2_scheduler.policies.learnt.placer_files import PLACER_FILE, SPEEDS_FILE, PlacerRun, save_placer
from dl2_scheduler.policies.placement.explain import explain
from dl2_scheduler.policies.placement.registry import PLACEMENT_NAMES, make_placement
from dl2_scheduler.policies.placement.speed_model import PROFILES_FILE, open_speed_model, save_speed_model
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.policies.user_policy import SimulatedPlacement
from dl2_scheduler.sim.placed.scenario import Scenario
from tests.dl2_scheduler.policies.placement.fitted import MODELS, drawn_agents, drawn_model
from tests.dl2_scheduler.policies.placement.test_placement_policies import job, view_of

OWN = """
from dl2_scheduler.cluster.hardware.view import Places

class First:
    def place(self, view):
        return Places({0: ((0,), (0,))})

class Greedy:
    def place(self, view):
        return Places({job: ((0,) * row[0], (0,) * row[1]) for job, row in enumerate(view.missing.tolist())})

class Raises:
    def place(self, view):
        raise RuntimeError("no luck")
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder with all that there can be: a policy, a model of speeds, profiles."""
    model = drawn_model()
    rng = np.random.default_rng(0)
    shapes = placer_shapes(len(MODELS), {"hidden.bias": (8,)})
    placer = LearntPlacer({name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()})
    save_placer(tmp_path / "run", PlacerRun(MODELS, placer, model.speeds))
    save_agents(tmp_path / "run", drawn_agents(), model.profiles)
    save_speed_model(tmp_path / "run", model)
    return tmp_path / "run"


def _names(run: Path) -> list[str]:
    named = [name.replace(":MODEL", f":{run}").replace(":RUN", f":{run}") for name in PLACEMENT_NAMES]
    return [name for name in named if name != "MODULE:CLASS"]


def test_each_name_makes_a_policy_that_keeps_the_contract_twice_alike(run: Path):
    scenario = Scenario.harmony(4.0)
    jobs = scenario.jobs(5)[:8]
    for name in _names(run):
        runs = []
        for _ in range(2):
            policy = make_placement(name)
            if name.startswith("annealing"):
                policy = replace(policy, policy=replace(policy.policy, trials=3))
            placed = SimulatedPlacement(name, policy)
            runs.append(scenario.completion_times(FixedDemand(), placed, jobs).tolist())
        assert runs[0] == runs[1], name


def test_a_folder_gives_back_what_was_written(run: Path):
    found, written = open_speed_model(run), drawn_model()
    assert (found.models, found.profiles) == (written.models, written.profiles)
    view = view_of([job(0, "ctc"), job(1, "wlm")], tasks=[(0, 0, 0), (0, 1, 1), (1, 0, 0), (1, 1, 1)])
    assert found.rates(view.placed).tolist() == pytest.approx(written.rates(view.placed).tolist())
    assert found.slowdown(view.placed).tolist() == written.slowdown(view.placed).tolist()


def test_a_type_that_is_not_known_is_placed_and_not_felt(run: Path):
    jobs = [job(0, "ctc"), job(1, "wlm")]
    view = view_of(jobs, nodes=2)
    other = replace(view, models=("ctc", "never-seen"), placed=replace(view.placed, model=np.array([0, 1])))
    for name in _names(run):
        policy = make_placement(name)
        places = policy.place(other)
        check_placement(other, places)
        if policy.knows is not None:
            assert policy.unknown(other.models) == ["never-seen"]
            if 1 in places.groups:
                assert "does not know its type" in policy.explain(other, places, ("node-1", "node-2"))[1] or (
                    policy.knows.speeds is None
                )
    alone = open_speed_model(run).view_of(other)
    assert alone.placed.model.tolist() == [MODELS.index("ctc"), -1]


class Beside:
    """A job's speed is 100, less where its tasks share nodes with others' and where it is spread."""

    def rates(self, placements):
        spread = [len(set(placements.group[placements.job == job])) for job in range(len(placements.model))]
        here = [np.isin(placements.group, placements.group[placements.job == job]) for job in range(len(spread))]
        shared = [set(placements.job[tasks]) - {job} for job, tasks in enumerate(here)]
        return np.array([100 / (1 + 0.25 * len(own) + 0.1 * (n - 1)) for own, n in zip(shared, spread, strict=True)])


def test_a_choice_is_explained_by_what_is_predicted_here_and_elsewhere(run: Path):
    nodes = ("node-1", "node-2", "node-3")
    view = view_of([job(0, "ctc"), job(1, "wlm")], tasks=[(1, 0, 0), (1, 1, 0)])
    one = explain(view, Places({0: ((0,), (0,))}), Beside(), nodes)
    assert one == {0: "node-1: +25% slowdown beside wlm; node-2: +0% slowdown; node-3: +0% slowdown"}
    two = explain(view, Places({0: ((1,), (2,))}), Beside(), nodes)[0]
    assert two.startswith("workers on node-2, servers on node-3: +10% slowdown, alone there; node-2: +0% slowdown")
    assert two.endswith("; node-1: +25% slowdown")
    assert "; node-3: " in make_placement(f"annealing:{run}").explain(view, Places({0: ((0,), (0,))}), nodes)[0]
    assert make_placement("best-fit").explain(view, Places({0: ((0,), (0,))}), nodes) == {0: "node-1 by best-fit"}


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        (
            "lod-balance",
            "unknown placement lod-balance: give one of load-balance, .*:RUN, agents:RUN, MODULE:CLASS",
        ),
        ("lif-own", "unknown placement lif-own: give one of .*lif-own:MODEL"),
        ("spread", "spread counts tasks and knows no places: give load-balance here"),
        ("lif-own:nowhere", "lif-own:nowhere: nowhere is no folder: give a folder that dl2 fit --places"),
        ("learnt:nowhere", "no placement policy in nowhere"),
        ("agents:nowhere", "no agents in nowhere"),
        (
            "look-ahead:run",
            "places in dl2 simulate and dl2 evaluate --world alone: give learnt:run here",
        ),
        ("pod-search:nowhere", "pod-search:nowhere: nowhere is no folder"),
        ("annealing:.", "has neither speeds.npz nor profiles.json"),
        ("nowhere_at_all:Policy", "cannot be made: ModuleNotFoundError"),
        ("examples.fewest_epochs_first:FewestEpochsFirst", r"which has no place\(view\)"),
    ],
)
def test_a_wrong_name_or_file_is_told_before_anything_starts(name, wrong, tmp_path, monkeypatch):
    if not name.startswith("examples"):
        monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=wrong):
        make_placement(name)


LONG = "a number of 5,000 digits"


def text_of(told: dict) -> str:
    return json.dumps(told).replace(f'"{LONG}"', "1" * 5000)


def changed(told: dict, wrong: dict) -> dict:
    return {**told, "profiles": {**told["profiles"], "ctc": {**told["profiles"]["ctc"], **wrong}}}


def _without(told: dict, *keys: str) -> dict:
    return {key: value for key, value in told.items() if key not in keys}


@pytest.mark.parametrize(
    ("damage", "wrong"),
    [
        (lambda told: _without(told, "profiles"), "is damaged, or of another version: 'profiles'"),
        (lambda told: {**told, "profiles": {}}, "give 1 to"),
        (lambda told: {**told, "profiles": _without(told["profiles"], "ctc")}, "the interference is not of 5 models"),
        (
            lambda told: _without({**told, "profiles": _without(told["profiles"], "ctc")}, "interference"),
            "other models",
        ),
        (lambda told: {**told, "interference": {"coefficients": [[1]]}}, "damaged"),
        (lambda told: {**told, "profiles": {**told["profiles"], "ctc": {"batch": -1}}}, "damaged"),
        (lambda told: {**told, "interference": {"coefficients": [[10**400]]}}, "damaged"),
        *(
            (lambda told, wrong=wrong: changed(told, wrong), "is damaged, or of another version")
            for wrong in (
                {"batch": 10**400},
                {"alone_s": LONG},
                {"size_mb": "many"},
                {"worker": 5},
                {"worker": {"cpu": -1}},
                {"server": {"cpu": 10**400}},
                {"server": {"cpu": "all"}},
                {"server": {"cpu": float("nan")}},
            )
        ),
    ],
)
def test_damaged_profiles_are_refused(damage, wrong, run: Path):
    file = run / PROFILES_FILE
    file.write_text(text_of(damage(json.loads(file.read_text()))))
    with pytest.raises(BadInput, match=wrong):
        make_placement(f"lif-own:{run}")


def test_a_folder_that_lacks_what_a_policy_needs(run: Path):
    (run / SPEEDS_FILE).unlink()
    assert make_placement(f"lif-own:{run}").knows.speeds is None
    with pytest.raises(BadInput, match=r"the folder has no speeds\.npz"):
        make_placement(f"annealing:{run}")
    (run / PROFILES_FILE).unlink()
    (run / PLACER_FILE).unlink()
    with pytest.raises(BadInput, match="neither"):
        make_placement(f"lif-own:{run}")


def test_a_policy_of_ones_own_and_what_is_wrong_with_its_answers(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend("")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "places_of_mine.py").write_text(OWN)
    view = view_of([job(0, "ctc"), job(1, "ctc", 3, 3)])
    first = SimulatedPlacement("first", make_placement("places_of_mine:First"))
    assert first.place(view).groups == {0: ((0,), (0,))}
    with pytest.raises(BadInput, match="placement greedy, after 0 s: group 0 would have to hold more"):
        SimulatedPlacement("greedy", make_placement("places_of_mine:Greedy")).place(view)
    with pytest.raises(BadInput, match=r"it raised RuntimeError: no luck \(.*places_of_mine.py, line"):
        SimulatedPlacement("raises", make_placement("places_of_mine:Raises")).place(view)


@pytest.mark.parametrize(
    "answer",
    [None, Places({7: ((0,), (0,))}), Places({0: ((0,),)}), Places({0: ((0,), (-1,))}), Places({0: ((), (0,))})],
)
def test_answers_that_are_no_placement(answer):
    with pytest.raises(BadInput):
        check_placement(view_of([job(0, "ctc")]), answer)
