"""How fast jobs train, by model, servers and workers."""

import ast
import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.interpolate import RBFInterpolator

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.speeds import Speeds

_CSV_FIELDS = ("model", "servers", "workers", "samples_per_second")


@dataclass(frozen=True)
class Point:
    """One measurement.

    Attributes:
        servers: of the job.
        workers: of the job.
        samples_per_second: of all workers together.
    """

    servers: int
    workers: int
    samples_per_second: float


def interpolated(points: Mapping[str, Iterable[Point]], max_servers: int = 16, max_workers: int = 16) -> Speeds:
    """Speeds between measured points, by linear radial basis functions on (servers, workers); exact at the points."""
    servers, workers = np.mgrid[0 : max_servers + 1, 0 : max_workers + 1]
    where = np.column_stack([servers.ravel(), workers.ravel()]).astype(float)
    grids = {}
    for model, measured in points.items():
        rows = list(measured)
        at = np.array([(point.servers, point.workers) for point in rows], dtype=float)
        values = np.array([point.samples_per_second for point in rows])
        grid = RBFInterpolator(at, values, kernel="linear", degree=-1)(where).reshape(servers.shape)
        grid[0, :] = grid[:, 0] = 0.0
        grids[model] = grid
    return Speeds(grids)


def read_points(path: Path) -> dict[str, list[Point]]:
    """Measurements, in the format of the DL2 testbed's file or as CSV with a header.

    Raises:
        BadInput: with the line and the reason.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {error}") from error
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise BadInput(f"{path}: empty: give lines of {', '.join(_CSV_FIELDS)}")
    read = _testbed_points if lines[0][1].lstrip().startswith("(") else _csv_points
    points: dict[str, list[Point]] = {}
    seen: set[tuple[str, int, int]] = set()
    for number, model, point in read(path, lines):
        key = (model, point.servers, point.workers)
        if key in seen:
            raise BadInput(f"{path}:{number}: {model} with {point.servers} servers and {point.workers} workers again")
        if point.servers < 1 or point.workers < 1 or not np.isfinite(point.samples_per_second):
            raise BadInput(f"{path}:{number}: {point}: give counts from 1 on and a finite speed")
        if point.samples_per_second < 0:
            raise BadInput(f"{path}:{number}: {point.samples_per_second} samples a second: give a number from 0 on")
        seen.add(key)
        points.setdefault(model, []).append(point)
    return points


def _testbed_points(path: Path, lines: Iterable[tuple[int, str]]) -> Iterable[tuple[int, str, Point]]:
    for number, line in lines:
        try:
            model, _, _, servers, workers, speeds, *_ = ast.literal_eval(line.strip())
            yield number, str(model), Point(int(servers), int(workers), float(sum(speeds)))
        except (ValueError, SyntaxError, TypeError) as error:
            wanted = "(model, mode, batch, servers, workers, [samples/s of each worker], ...)"
            raise BadInput(f"{path}:{number}: not a row {wanted}: {error}") from error


def _csv_points(path: Path, lines: Iterable[tuple[int, str]]) -> Iterable[tuple[int, str, Point]]:
    (_, header), *rows = lines
    names = [name.strip() for name in next(csv.reader([header]))]
    if missing := set(_CSV_FIELDS) - set(names):
        raise BadInput(f"{path}:1: no column {', '.join(sorted(missing))}: give {', '.join(_CSV_FIELDS)}")
    for number, line in rows:
        cells = next(csv.reader([line]))
        if len(cells) != len(names):
            raise BadInput(f"{path}:{number}: {len(cells)} cells, where the header has {len(names)}")
        row = dict(zip(names, cells, strict=True))
        try:
            point = Point(int(row["servers"]), int(row["workers"]), float(row["samples_per_second"]))
        except ValueError as error:
            raise BadInput(f"{path}:{number}: {error}") from error
        yield number, row["model"].strip(), point
