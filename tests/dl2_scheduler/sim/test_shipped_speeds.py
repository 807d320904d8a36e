"""Shipped speeds: the form, the fitting, and the file that comes with the package."""

import math
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.sim import fit_speeds
from dl2_scheduler.sim.catalogue import CATALOGUE
from dl2_scheduler.sim.fit_speeds import fit
from dl2_scheduler.sim.shipped import COEFFICIENTS, Fit, shipped_fits, shipped_speeds
from dl2_scheduler.sim.speeds import SpeedPoint
from tests.paths import ROOT

KNOWN = (3.0, 0.3, -0.2, 0.05, 0.0, 0.4, 0.1, -0.1, *(0.0,) * 7)
MEASURED = [(servers, workers) for servers in range(1, 12) for workers in range(1, 12)]
every_model = pytest.mark.parametrize("model", sorted(CATALOGUE))


def known_speed(servers: int, workers: int) -> float:
    x, y = math.log((servers + 4) / 8), math.log((workers + 4) / 8)
    return math.exp(3.0 + 0.3 * y - 0.2 * y**2 + 0.05 * y**3 + 0.4 * x + 0.1 * x * y - 0.1 * x * y**2)


def test_the_form_finds_itself_again() -> None:
    found = fit("toy", [SpeedPoint(servers, workers, known_speed(servers, workers)) for servers, workers in MEASURED])
    assert found.coefficients == pytest.approx(KNOWN, abs=1e-5)
    assert (found.points, found.most_servers, found.most_workers, found.most_together) == (121, 11, 11, 22)
    assert found.p95_error == 0
    grid = found.grid(11, 11)
    for servers, workers in MEASURED:
        assert grid[servers, workers] == pytest.approx(known_speed(servers, workers), rel=1e-4)


def test_errors_are_relative() -> None:
    speeds = [10.0 * (1.1 if number % 2 else 1.0) for number in range(len(MEASURED))]
    found = fit("toy", [SpeedPoint(*at, speed) for at, speed in zip(MEASURED, speeds, strict=True)])
    assert found.mean_error == pytest.approx(0.05, abs=0.01)
    assert found.mean_error <= found.p95_error < 0.1


def test_what_did_not_run_is_no_point() -> None:
    points = [SpeedPoint(servers, workers, 5.0) for servers, workers in MEASURED]
    found = fit("toy", [*points, SpeedPoint(12, 12, 0.0)])
    assert (found.points, found.most_servers) == (121, 11)


def test_beyond_what_was_measured_the_speed_stays() -> None:
    fits = Fit(KNOWN, most_servers=20, most_workers=12, most_together=24, points=50, mean_error=0.0, p95_error=0.0)
    grid = fits.grid(64, 64)
    assert grid[16, 16] == grid[32, 32] == grid[64, 64] == pytest.approx(grid[12, 12])
    assert grid[40, 8] == pytest.approx(grid[20, 4])
    assert grid[1, 64] == pytest.approx(grid[1, 12])
    assert grid[0, 1:] == pytest.approx(np.diagonal(grid)[1:])  # without servers
    assert not grid[:, 0].any()


def test_the_catalogue_has_speeds() -> None:
    speeds = shipped_speeds()
    assert speeds.models == tuple(CATALOGUE)
    assert {grid.shape for grid in speeds.grids.values()} == {(17, 17)}


@every_model
def test_small_errors(model: str) -> None:
    fits = shipped_fits()[model]
    assert len(fits.coefficients) == COEFFICIENTS
    assert 0 < fits.mean_error < 0.08
    assert fits.mean_error < fits.p95_error < 0.2


def test_the_docs_have_the_errors() -> None:
    text = (ROOT / "docs" / "reference" / "traces.md").read_text()
    for model, each in shipped_fits().items():
        assert f"| {model} | {each.points} | {each.mean_error:.1%} | {each.p95_error:.1%} |" in text


@every_model
def test_no_wild_speeds(model: str) -> None:
    """One more task changes the speed by no more than doubling it, as in the measurements."""
    grid = shipped_speeds(40, 40).grid(model)[1:, 1:]
    for axis in (0, 1):
        steps = np.diff(np.log(grid), axis=axis)
        assert np.abs(steps).max() < math.log(2.0)
    assert grid[:16, :16].max() >= grid.max() * 0.9


def test_larger_grids_agree_with_smaller_ones() -> None:
    small, large = shipped_speeds(4, 9), shipped_speeds(32, 20)
    for model in small.models:
        assert np.allclose(small.grid(model), large.grid(model)[:5, :10], rtol=1e-12)


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.command()(fit_speeds.main)
    return app


def test_the_script_writes_what_the_package_reads(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, out = tmp_path / "table.csv", tmp_path / "fits.json"
    rows = [f"toy,{servers},{workers},{known_speed(servers, workers)!r}" for servers, workers in MEASURED]
    table.write_text("\n".join(["model,servers,workers,samples_per_second", *rows]))
    result = CliRunner().invoke(app, [str(table), "-o", str(out)])
    assert result.exit_code == 0
    assert " ".join(result.output.split()) == "toy 121 points error 0.0% mean 0.0% p95"
    monkeypatch.setattr("dl2_scheduler.sim.shipped.FILE", out)
    assert shipped_speeds().of("toy", 3, 5) == pytest.approx(known_speed(3, 5), rel=1e-4)


def test_too_few_measurements(app: typer.Typer, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("model,servers,workers,samples_per_second\ntoy,1,1,5\n")
    result = CliRunner().invoke(app, [str(table), "-o", str(tmp_path / "fits.json")])
    assert result.exit_code == 2
    assert "fit_speeds: toy: 1 measurements above 0: give at least 30" in result.output
    with pytest.raises(BadInput):
        fit("toy", [])
