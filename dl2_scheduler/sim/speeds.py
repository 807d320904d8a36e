"""This module says how fast jobs train, by model, servers and workers."""

import ast
import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.interpolate import RBFInterpolator

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.jobs import MOST_TASKS
from dl2_scheduler.cluster.ranges import MOST_SPEED, check_range
from dl2_scheduler.cluster.speeds import Grid, Speeds
from dl2_scheduler.sim.jsonlines import text
from elastic_ps.system.bounded_files import read_text

_LEAST_POINTS, _MOST_POINTS = 2, 5_000  # of a model: a surface through one point is none, and many take long
_LONGEST_ROW = 10_000  # characters
_CSV_FIELDS = ("model", "servers", "workers", "samples_per_second")


@dataclass(frozen=True)
class SpeedPoint:
    """A point is one measurement of a speed.

    Attributes:
        servers: of the job; 0: it has none, its workers all-reduce.
        workers: of the job.
        samples_per_second: of all workers together.
    """

    servers: int
    workers: int
    samples_per_second: float


def interpolated(points: Mapping[str, Iterable[SpeedPoint]], max_servers: int = 16, max_workers: int = 16) -> Speeds:
    """Return speeds between measured points, by linear radial basis functions on (servers, workers).

    At the points they are exact. Points with 0 servers are those of jobs without servers, between which speeds are
    linear; beyond them they are as at the nearest.

    Args:
        points: measured, by model.
        max_servers: of the grids.
        max_workers: of the grids.

    Raises:
        BadInput: there are too few points of a model, or too many.
    """
    grids = {}
    for model, measured in points.items():
        rows = list(measured)
        grids[model] = grid = np.zeros((max_servers + 1, max_workers + 1))
        without = [row for row in rows if not row.servers]
        if len(without) < len(rows) or not rows:
            with_servers = [row for row in rows if row.servers]
            grid[1:, 1:] = _surface(model, with_servers, max_servers, max_workers)[1:, 1:]
        if without:
            told = np.array(sorted((row.workers, row.samples_per_second) for row in without))
            grid[0, 1:] = np.interp(np.arange(1, max_workers + 1), told[:, 0], told[:, 1])
    return Speeds(grids)


def _surface(model: str, rows: Sequence[SpeedPoint], max_servers: int, max_workers: int) -> Grid:
    """Return a surface through measured points, (servers, workers) from 0 on. Raises BadInput."""
    if not _LEAST_POINTS <= len(rows) <= _MOST_POINTS:
        raise BadInput(f"{len(rows)} rows of {model}: give {_LEAST_POINTS} to {_MOST_POINTS:,}")
    servers, workers = np.mgrid[0 : max_servers + 1, 0 : max_workers + 1]
    where = np.column_stack([servers.ravel(), workers.ravel()]).astype(float)
    at = np.array([(point.servers, point.workers) for point in rows], dtype=float)
    values = np.array([point.samples_per_second for point in rows])
    try:
        found: Grid = RBFInterpolator(at, values, kernel="linear", degree=-1)(where).reshape(servers.shape)
    except np.linalg.LinAlgError as error:
        raise BadInput(f"no surface goes through the {len(rows)} rows of {model}: {error}") from error
    return found


def read_points(path: Path) -> dict[str, list[SpeedPoint]]:
    """Return the measurements of a file, in the format of the DL2 testbed's or as CSV with a header.

    Raises:
        BadInput: with the line and the reason.
    """
    try:
        whole = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {error}") from error
    lines = [(number, line) for number, line in enumerate(whole.splitlines(), 1) if line.strip()]
    if not lines:
        raise BadInput(f"{path}: empty: give lines of {', '.join(_CSV_FIELDS)}")
    read = _testbed_points if lines[0][1].lstrip().startswith("(") else _csv_points
    points: dict[str, list[SpeedPoint]] = {}
    seen: set[tuple[str, int, int]] = set()
    for number, model, point in read(path, lines):
        key = (model, point.servers, point.workers)
        if key in seen:
            raise BadInput(f"{path}:{number}: {model} with {point.servers} servers and {point.workers} workers again")
        if not (0 <= point.servers <= MOST_TASKS and 1 <= point.workers <= MOST_TASKS):
            counts = f"{point.servers} servers and {point.workers} workers"
            raise BadInput(
                f"{path}:{number}: {counts}: give 1 to {MOST_TASKS} of each, or 0 servers where the job has none"
            )
        check_range(f"{path}:{number}: samples a second", point.samples_per_second, MOST_SPEED)
        seen.add(key)
        points.setdefault(model, []).append(point)
    return points


def _testbed_points(path: Path, lines: Iterable[tuple[int, str]]) -> Iterable[tuple[int, str, SpeedPoint]]:
    for number, line in lines:
        try:
            if len(line) > _LONGEST_ROW:
                raise ValueError(f"longer than {_LONGEST_ROW:,} characters")
            model, _, _, servers, workers, speeds, *_ = ast.literal_eval(line.strip())
            found = text(str(model)), SpeedPoint(int(servers), int(workers), float(sum(speeds)))
        except (ValueError, SyntaxError, TypeError, OverflowError, RecursionError, MemoryError) as error:
            wanted = "(model, mode, batch, servers, workers, [samples/s of each worker], ...)"
            raise BadInput(f"{path}:{number}: not a row {wanted}: {error}") from error
        yield number, *found


def _csv_points(path: Path, lines: Iterable[tuple[int, str]]) -> Iterable[tuple[int, str, SpeedPoint]]:
    (_, header), *rows = lines
    names = [name.strip() for name in _cells(path, 1, header)]
    if missing := set(_CSV_FIELDS) - set(names):
        raise BadInput(f"{path}:1: no column {', '.join(sorted(missing))}: give {', '.join(_CSV_FIELDS)}")
    for number, line in rows:
        cells = _cells(path, number, line)
        if len(cells) != len(names):
            raise BadInput(f"{path}:{number}: {len(cells)} cells, where the header has {len(names)}")
        row = dict(zip(names, cells, strict=True))
        try:
            point = SpeedPoint(int(row["servers"]), int(row["workers"]), float(row["samples_per_second"]))
            model = text(row["model"].strip())
        except (ValueError, TypeError) as error:
            raise BadInput(f"{path}:{number}: {str(error)[:200]}") from error
        yield number, model, point


def _cells(path: Path, number: int, line: str) -> list[str]:
    try:
        return next(csv.reader([line]))
    except csv.Error as error:
        raise BadInput(f"{path}:{number}: {error}: give shorter cells") from error
