"""`--placement look-ahead:RUN` of simulations: it looks ahead where it can, needs no torch, and says what it lacks."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.commands.simulation.look_ahead import make_simulated_placement
from dl2_scheduler.commands.simulation.placed import run_placement
from dl2_scheduler.policies.learnt.placer import LearntPlacer, placer_shapes
from dl2_scheduler.policies.learnt.placer_files import SPEEDS_FILE, PlacerRun, save_placer
from dl2_scheduler.policies.placement.speed_model import save_speed_model
from dl2_scheduler.sim.placed.scenario import Scenario
from tests.dl2_scheduler.policies.placement.fitted import MODELS, drawn_model

SETTINGS = {
    "cluster": "6x16cpu,2gpu",
    "worker": None,
    "server": None,
    "load": "2,3",
    "pattern": "uniform",
    "interval": "20m",
    "tasks": 3,
    "jobs": 8,
    "model": "m",
    "world": "",
    "updates": 1,
}
NO_TORCH = """
import sys
from dl2_scheduler.commands.simulation.placed import run_placement
from tests.dl2_scheduler.commands.test_look_ahead import few_jobs
print(run_placement(few_jobs(), sys.argv[1], None, 0).times.mean(), "torch" in sys.modules)
"""


def few_jobs() -> Scenario:
    """Return Harmony's cluster with ten jobs."""
    scenario = Scenario.harmony(4.0)
    return replace(scenario, workload=replace(scenario.workload, jobs=10))


@pytest.fixture
def run(tmp_path):
    model, rng = drawn_model(), np.random.default_rng(0)
    shapes = placer_shapes(len(MODELS), {"hidden.bias": (8,)})
    placer = LearntPlacer({name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()})
    save_placer(tmp_path, PlacerRun(MODELS, placer, model.speeds))
    save_speed_model(tmp_path, model)
    told(tmp_path, SETTINGS)
    return tmp_path


def told(run, settings) -> None:
    (run / "settings.json").write_text(json.dumps({"settings": settings}))


@pytest.mark.slow
def test_it_places_otherwise_than_the_policy_alone_and_needs_no_torch(run):
    done = subprocess.run(
        [sys.executable, "-c", NO_TORCH, f"look-ahead:{run}"], capture_output=True, text=True, check=True, timeout=250
    )
    mean, torch = done.stdout.split()
    assert torch == "False"
    alone = run_placement(few_jobs(), f"learnt:{run}", None, 0).times.mean()
    assert abs(float(mean) - alone) > 1e-6


def test_in_another_cluster_it_decides_as_the_policy_alone(run):
    told(run, {**SETTINGS, "cluster": "5x16cpu,2gpu"})
    runs = [run_placement(few_jobs(), f"{kind}:{run}", None, 0).times.tolist() for kind in ("learnt", "look-ahead")]
    assert runs[0] == runs[1]


def test_a_run_of_a_world_knows_its_clusters(run):
    told(run, {**SETTINGS, "cluster": None, "world": "mechanistic"})
    assert make_simulated_placement(f"look-ahead:{run}").knows.models == MODELS


@pytest.mark.parametrize(
    "settings", [None, {"teacher": "drf"}, {**SETTINGS, "pattern": "none"}, {**SETTINGS, "interval": "never"}, []]
)
def test_a_run_that_does_not_say_which_jobs_may_come_is_refused(settings, run):
    told(run, settings)
    with pytest.raises(BadInput):
        make_simulated_placement(f"look-ahead:{run}")


def test_a_run_without_speeds_is_refused(run):
    (run / SPEEDS_FILE).unlink()
    with pytest.raises(BadInput, match=r"has no speeds\.npz, in which it could look ahead"):
        make_simulated_placement(f"look-ahead:{run}")
