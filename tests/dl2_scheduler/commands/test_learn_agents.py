"""`dl2 learn-agents` makes a folder whose agents place in networks; what is wrong is told before anything is made."""

import json
import re

import pytest
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.commands.simulation.learning import learn_agents
from dl2_scheduler.policies.learnt.graph.agent_files import AGENTS_FILE, open_agents
from dl2_scheduler.sim.placed import scenario

SMALL = "--scenario fat-tree --jobs 4 --sequences 1"


@pytest.fixture(autouse=True)
def one_short_sequence(monkeypatch):
    monkeypatch.setattr(learn_agents, "_COMPARED", range(1))
    monkeypatch.setattr(scenario, "GRAPH_JOBS", 6)


def invoke(line: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, line.split())
    return result.exit_code, result.output


@pytest.mark.slow
def test_a_run_places_in_every_network_and_is_not_overwritten(tmp_path):
    run = tmp_path / "run"
    status, output = invoke(f"learn-agents --out {run} --updates 1 {SMALL}")
    assert status == 0, output
    row = re.search(rf"agents:{run} +([\d.]+)", output)
    assert row is not None, output
    status, told = invoke(f"evaluate --world formula --scenario bcube --load 5 --sequences 1 --placement agents:{run}")
    assert status == 0, told
    settings = json.loads((run / "settings.json").read_text())["settings"]
    assert (settings["scenario"], settings["sequences"], settings["updates"]) == ("fat-tree", 1, 1)
    status, told = invoke(f"learn-agents --out {run} {SMALL}")
    assert (status, f"{run} holds a run (agents.npz): name another folder" in told) == (2, True), told


@pytest.mark.slow
def test_agents_of_the_paper_place_in_their_own_network_alone(tmp_path):
    run = tmp_path / "run"
    status, output = invoke(f"learn-agents --out {run} --learner paper --updates 1 {SMALL}")
    assert status == 0, output
    lines = f"evaluate --world formula --load 6 --sequences 1 --placement agents:{run} --scenario"
    assert invoke(f"{lines} fat-tree")[0] == 0
    status, told = invoke(f"{lines} vl2")
    assert status != 0
    assert "the cluster has 4 with 20: learn others for it" in told, told


@pytest.mark.slow
def test_an_interrupted_run_leaves_the_best_so_far(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "dl2_scheduler.learning.placement.graph.run.improve_agents",
        lambda *_: (_ for _ in ()).throw(KeyboardInterrupt),
    )
    status, output = invoke(f"learn-agents --out {tmp_path} --learner mended --updates 1 {SMALL}")
    assert (status, f"stopped: the best policy so far is agents:{tmp_path}" in output) == (130, True), output
    assert len(open_agents(tmp_path).models) == 8


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("--server-type i", "--server-type, --oversubscription: of one network: give --scenario"),
        ("--oversubscription 4", "--server-type, --oversubscription: of one network: give --scenario"),
        ("--scenario vl2 --oversubscription 0.5", "--oversubscription"),
        ("--scenario harmony", "--scenario"),
        ("--load 0", "give a positive number"),
        ("--load 1e9", "--load"),
        ("--load 1e-5", "jobs come in 3e+06 intervals"),
        ("--learner paper", "--learner paper: its agents belong to one network: give --scenario"),
        ("--learner nobody", "--learner"),
        ("--sequences 0", "--sequences"),
    ],
)
def test_what_is_wrong_is_told_before_the_folder_is_made(line, wrong, tmp_path):
    run = tmp_path / "run"
    status, output = invoke(f"learn-agents --out {run} {line}")
    assert (status, wrong in output) == (2, True), output
    assert not run.exists()


@pytest.mark.parametrize(
    "lies", ["policy.npz", "placer.npz", "checkpoint.pt", "chic.npz", "profiles.json", "speeds.npz"]
)
def test_what_another_command_has_written_is_not_overwritten(lies, tmp_path):
    (tmp_path / lies).touch()
    status, output = invoke(f"learn-agents --out {tmp_path} {SMALL}")
    assert (status, f"({lies})" in output) == (2, True), output
    assert not (tmp_path / AGENTS_FILE).exists()
    assert not (tmp_path / "settings.json").exists()
