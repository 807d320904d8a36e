"""The graph scheduler's figures, drawn: those of interference, and the comparisons with runs that are very short."""

import csv
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dl2_scheduler.cli import app
from dl2_scheduler.figures.placement import graph_comparisons
from dl2_scheduler.figures.placement.graph_lab import AGENTS, SHOWN, GraphLab, GraphScale
from dl2_scheduler.figures.placement.graph_registry import GRAPH_FIGURES, draw_graph
from dl2_scheduler.learning.placement.graph_run import GraphSettings

SHORT = GraphScale(1, 1, (1.0,), GraphSettings(rounds=1, taught=1, epochs=1, updates=0, selected=1))


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
def test_comparisons_are_drawn_from_agents_that_are_learnt_once(tmp_path, monkeypatch):
    monkeypatch.setattr(graph_comparisons, "OVERSUBSCRIPTIONS", (1.0,))
    found = rows("graph-oversubscription", tmp_path)
    assert [row["policy"] for row in found] == ["pod search that waits, fitted", *SHOWN]
    learnt = (tmp_path / "graph-runs" / "agents-0.npz").stat().st_mtime_ns
    found = rows("graph-9", tmp_path)
    assert len(found) == 3 * 6
    assert {row["policy"] for row in found} == {AGENTS, "pod search that waits, fitted", *SHOWN}
    assert (tmp_path / "graph-runs" / "agents-0.npz").stat().st_mtime_ns == learnt


def test_the_command_draws_them_and_refuses_speeds(tmp_path):
    run = CliRunner().invoke
    assert run(app, ["figure", "graph-table3", "--out", str(tmp_path)]).exit_code == 0
    assert (tmp_path / "graph-table3.png").exists()
    table = tmp_path / "speeds.csv"
    table.write_text("model,servers,workers,samples_per_second\nctc,1,1,10\nctc,2,2,20\n")
    refused = run(app, ["figure", "graph-2", "--out", str(tmp_path), "--speeds", str(table)])
    assert refused.exit_code != 0
    assert len(GRAPH_FIGURES) == 8
