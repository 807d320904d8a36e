"""These are the rows that `benchmarks.measure_interference` has measured, in a file that outlives it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from benchmarks.support.pinned_jobs import ModelSize
from dl2_scheduler.cluster.hardware.measured import MeasuredPlacement
from dl2_scheduler.cluster.hardware.measured_table import read_row, row_line


@dataclass(frozen=True)
class _Head:
    how: str
    models: Mapping[str, ModelSize]


_HEAD = TypeAdapter(_Head)


class MeasuredRows:
    """These `MeasuredRows` are what has been measured, in a file that each measurement is appended to.

    Args:
        path: of the file, which may not be there yet; what a call that was killed has cut off is dropped from it.
        how: it is measured; rows of another way do not go together with them.

    Attributes:
        all: the rows.
        models: what they are like, as the file's first line has it.

    Raises:
        SystemExit: the file's rows were measured in another way.
    """

    def __init__(self, path: Path, how: str):
        self._path, self._how = path, how
        self.models: Mapping[str, ModelSize] = {}
        self.all: list[MeasuredPlacement] = []
        whole = [line for line in _lines(path) if line.endswith(b"\n")]
        for number, line in enumerate(whole):
            if number:
                self.all.append(read_row(line))
            else:
                self._begin_again(_HEAD.validate_json(line))
        if path.exists():
            os.truncate(path, sum(map(len, whole)))

    def begin(self, models: Mapping[str, ModelSize]) -> None:
        """Write down how it is measured, where nothing is written yet."""
        if not self.models:
            self.models = models
            self._append(_HEAD.dump_json(_Head(self._how, models)).decode())

    def add(self, row: MeasuredPlacement) -> None:
        """Keep a row."""
        self.all.append(row)
        self._append(row_line(row))

    def _begin_again(self, head: _Head) -> None:
        if head.how != self._how:
            raise SystemExit(f"{self._path} was measured with {head.how}, not {self._how}: move it away first")
        self.models = head.models

    def _append(self, line: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(line + "\n")


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True) if path.exists() else []
