"""The graph scheduler's figures, drawn: those of interference, and the comparisons with runs that are very short."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.figures.placement.contenders import SHORTEST
from dl2_scheduler.figures.placement.graph_lab import (
    AGENTS,
    SHOWN,
    GraphCluster,
    GraphLab,
    GraphScale,
    PolicyBar,
    StudyScale,
)
from dl2_scheduler.figures.placement.graph_learning import ONE, SEVERAL, UndividedScenario
from dl2_scheduler.figures.placement.graph_registry import GRAPH_FIGURES, draw_graph
from dl2_scheduler.learning.placement.graph.paper_run import PaperAgentsSettings
from dl2_scheduler.learning.placement.graph.rewards import RewardKind
from dl2_scheduler.learning.placement.graph.run import GraphSettings
from dl2_scheduler.learning.placement.policy_gradient import GradientSettings
from dl2_scheduler.sim.metrics import Estimate
from dl2_scheduler.sim.placed import scenario

BEST_FIT = "best fit", f"best fit{SHORTEST}"
FEW = GraphSettings(
    taught=1, epochs=1, updates=1, selected=1, gradient=GradientSettings(sequences=1, episodes=2, batch=64, passes=1)
)
STUDY = StudyScale(jobs=2, sequences=2, paper=PaperAgentsSettings(updates=1, selected=1), rewards=FEW)
SHORT = GraphScale(1, (GraphCluster(),), GraphSettings(taught=1, led=(), epochs=1, selected=1), study=STUDY)


@pytest.fixture(autouse=True)
def few_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario, "GRAPH_JOBS", 6)


def rows(number: str, folder: Path, scale: GraphScale = SHORT) -> list[dict[str, str]]:
    lab = GraphLab(folder, scale, 0, lambda _: None)
    assert draw_graph(number, lab, folder).read_bytes().startswith(b"\x89PNG")
    with (folder / f"{number}.csv").open() as file:
        return list(csv.DictReader(file))


def test_packed_jobs_lose_much_and_resnet_more_than_vgg_beside_ctc(tmp_path):
    found = rows("graph-1", tmp_path)
    losses = [float(row["value"]) for row in found if row["what"] == "lost_percent"]
    assert len(losses) == 8
    assert 20 < np.mean(losses) < 60
    for model in ("resnet-50", "vgg-16"):
        speeds = [float(row["value"]) for row in found if row["what"] == "speed" and row["model"] == model]
        assert speeds[0] == 1
        assert speeds == sorted(speeds, reverse=True)


def test_the_same_processor_is_worse_than_the_other(tmp_path):
    found = {(row["pair"], row["job"], row["way"]): float(row["speed"]) for row in rows("graph-2", tmp_path)}
    pairs = {key[:2] for key in found}
    assert len(pairs) == 6
    assert all(found[*pair, "same processor"] < found[*pair, "other processor"] <= 1.0001 for pair in pairs)


def test_spread_jobs_lose_much(tmp_path):
    losses = [float(row["lost_percent"]) for row in rows("graph-3", tmp_path)]
    assert 20 < np.mean(losses) < 90


def test_table_three_keeps_its_order(tmp_path):
    found = {row["model"]: float(row["error_percent"]) for row in rows("graph-table3", tmp_path)}
    assert min(found, key=found.get) == "own form"
    assert found["quadratic"] < found["linear"] < found["without PCIe"] < found["without CPU"]


@pytest.mark.slow
def test_figure_ten_has_several_agents_and_one_in_both_ways(tmp_path):
    found = rows("graph-10", tmp_path)
    agents = [f"{who}, {way}" for who in (SEVERAL, ONE) for way in ("as in the paper", "taught")]
    curves = [(row["agents"], int(row["where"])) for row in found if row["what"] == "percent over the planner"]
    assert {name for name, _ in curves} == set(agents)
    assert {where for _, where in curves} == {0, 1}
    bars = {(row["agents"], row["where"]) for row in found if row["what"] == "intervals"}
    assert bars == {(name, where) for name in [*agents, *BEST_FIT] for where in ("uniform", "google")}
    assert rows("graph-10", tmp_path) == found  # what was learnt is kept


@pytest.mark.slow
def test_every_reward_has_a_curve_from_the_same_start(tmp_path):
    found = rows("graph-rewards", tmp_path)
    assert {row["agents"] for row in found} == set(RewardKind)
    assert len({row["value"] for row in found if row["where"] == "0"}) == 1


def test_an_undivided_cluster_has_the_same_jobs_in_one_partition():
    divided = GraphCluster().scenario()
    lone = UndividedScenario.of(divided)
    assert lone.topology.partitions == 1
    assert lone.jobs(3) == [replace(job, partition=0) for job in divided.jobs(3)]


class Known:
    """A lab whose comparisons are known."""

    def __init__(self):
        self.scale, self.seed, self.scenarios = SHORT, 0, []

    def compared(self, scenario):
        self.scenarios.append(scenario)
        return [PolicyBar(name, Estimate(9.0, 0.5), Estimate(5.0, 1.0)) for name in (AGENTS, *SHOWN)]


@pytest.mark.parametrize(("number", "settings"), [("graph-7", 3), ("graph-8", 4), ("graph-9", 3)])
def test_comparisons_have_a_bar_for_each_policy_and_setting(number, settings, tmp_path):
    lab = Known()
    assert draw_graph(number, lab, tmp_path).exists()
    assert len(lab.scenarios) == settings
    with (tmp_path / f"{number}.csv").open() as file:
        found = list(csv.DictReader(file))
    assert len(found) == settings * (1 + len(SHOWN))
    assert {float(row["agents_under_percent"]) for row in found} == {5.0}


def test_gain_is_drawn_by_oversubscription(tmp_path):
    lab = Known()
    assert draw_graph("graph-oversubscription", lab, tmp_path).exists()
    tiers = [scenario.topology.capacity.min() for scenario in lab.scenarios]
    assert tiers == sorted(tiers, reverse=True)


@pytest.mark.slow
def test_agents_are_learnt_once(tmp_path):
    told: list[str] = []
    first, second = (GraphLab(tmp_path, SHORT, 0, told.append).agents() for _ in range(2))
    assert len(told) == 1
    assert all((first.arrays[name] == second.arrays[name]).all() for name in first.arrays)


def test_the_command_draws_them_and_refuses_speeds(tmp_path):
    run = CliRunner().invoke
    assert run(app, ["figure", "graph-table3", "--out", str(tmp_path)]).exit_code == 0
    assert (tmp_path / "graph-table3.png").exists()
    table = tmp_path / "speeds.csv"
    table.write_text("model,servers,workers,samples_per_second\nctc,1,1,10\nctc,2,2,20\n")
    refused = run(app, ["figure", "graph-2", "--out", str(tmp_path), "--speeds", str(table)])
    assert refused.exit_code != 0
    assert len(GRAPH_FIGURES) == 10
