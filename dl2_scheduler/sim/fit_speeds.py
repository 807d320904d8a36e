"""Fits the shipped speeds to a table of measurements: `python -m dl2_scheduler.sim.fit_speeds TABLE`."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.sim.shipped import COEFFICIENTS, FILE, Fit, terms
from dl2_scheduler.sim.speeds import SpeedPoint, read_points
from elastic_ps.system.terminal import say

_ABOUT = "Fitted by dl2_scheduler/sim/fit_speeds.py to measurements of the DL2 testbed; the form is in shipped.py."
_LEAST_POINTS = 2 * COEFFICIENTS
_DECIMALS = 6


def fit(model: str, measured: Sequence[SpeedPoint]) -> Fit:
    """Fit a curve by least squares of the logarithm of the speed; what did not run (0 samples a second) is left out.

    Raises:
        BadInput: there are too few measurements.
    """
    points = [point for point in measured if point.samples_per_second > 0]
    if len(points) < _LEAST_POINTS:
        raise BadInput(f"{model}: {len(points)} measurements above 0: give at least {_LEAST_POINTS}")
    servers = np.array([point.servers for point in points], dtype=float)
    workers = np.array([point.workers for point in points], dtype=float)
    speeds = np.array([point.samples_per_second for point in points])
    at = terms(servers, workers)
    coefficients = np.linalg.lstsq(at, np.log(speeds), rcond=None)[0].round(_DECIMALS)
    errors = np.abs(np.exp(at @ coefficients) / speeds - 1)
    return Fit(
        coefficients=tuple(coefficients.tolist()),
        most_servers=int(servers.max()),
        most_workers=int(workers.max()),
        most_together=int((servers + workers).max()),
        points=len(points),
        mean_error=round(float(errors.mean()), 4),
        p95_error=round(float(np.quantile(errors, 0.95)), 4),
    )


def main(
    table: Annotated[Path, typer.Argument(help="Measurements, in a format of `dl2 simulate --speeds`.")],
    out: Annotated[Path, typer.Option("-o", help="Where to write the fits.")] = Path(str(FILE)),
) -> None:
    """Fit every model of TABLE, print the errors, and write the coefficients."""
    try:
        fits = {model: fit(model, points) for model, points in sorted(read_points(table).items())}
    except BadInput as error:
        say(f"fit_speeds: {error}", err=True)
        raise typer.Exit(2) from None
    for model, each in fits.items():
        say(f"{model:24} {each.points:4} points  error {each.mean_error:6.1%} mean  {each.p95_error:6.1%} p95")
    lines = ",\n".join(f"{json.dumps(model)}: {json.dumps(asdict(each))}" for model, each in fits.items())
    out.write_text(f'{{"about": {json.dumps(_ABOUT)},\n"models": {{\n{lines}\n}}}}\n', encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
