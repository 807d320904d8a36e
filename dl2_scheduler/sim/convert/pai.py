"""This module reads Alibaba's PAI trace of 2020 (Weng et al., NSDI 2022): `pai_job_table` and `pai_task_table`.

The columns are those of the README and of the `.header` files of
https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2020; the tables themselves have no header line.
`plan_cpu` and `plan_gpu` are in hundredths. A task is a role: `ps`, `worker`, `evaluator`, or one with the framework's
name.
"""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.jobs import Resources
from dl2_scheduler.cluster.ranges import MOST_INSTANCES
from dl2_scheduler.sim.convert.filling import MOST_BYTES, Read, TracedJob, amount
from elastic_ps.system.bounded_files import read_text

RULES = (
    "id, arrival: job_name, and start_time of the job table",
    "servers: the instances of the task ps; one takes its plan_cpu and plan_gpu, divided by 100",
    "workers: the instances of all other tasks but evaluator; one takes the plan of the task with the most instances",
    "time: from the first start to the last end of the workers' tasks; the work of a job that failed is what it did "
    "until then",
    "left out: jobs without a row in the job table, without workers, without both times",
)

_JOB_COLUMNS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
_TASK_COLUMNS = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
_SERVERS, _NO_TRAINER = "ps", "evaluator"
_HUNDREDTHS = 100.0


@dataclass(slots=True)  # the table has more than a million tasks
class _Role:
    """This holds what all tasks of one role of a job are."""

    count: int = 0
    start: float = math.inf
    end: float = -math.inf
    largest: int = 0
    cpu: float = 0.0
    gpu: float = 0.0

    def add(self, where: str, row: Mapping[str, str]) -> None:
        """Add a task."""
        count = int(amount(row["inst_num"], f"{where}: inst_num", MOST_INSTANCES) or 0)
        self.count += count
        self.start = min(self.start, amount(row["start_time"], f"{where}: start_time") or math.inf)
        self.end = max(self.end, amount(row["end_time"], f"{where}: end_time") or -math.inf)
        cpu, gpu = (amount(row[name], f"{where}: {name}") or 0.0 for name in ("plan_cpu", "plan_gpu"))
        if count > self.largest:
            self.largest, self.cpu, self.gpu = count, cpu / _HUNDREDTHS, gpu / _HUNDREDTHS

    @property
    def plan(self) -> Resources | None:
        """Return what one instance takes; None: the table does not say."""
        return {"cpu": self.cpu, "gpu": self.gpu} if self.cpu or self.gpu else None


def read(paths: Sequence[Path]) -> Read:
    """Return the jobs of the two tables, given in any order.

    Raises:
        BadInput: with file, line and reason; or a table is missing.
    """
    tables = {_width(path): path for path in paths}
    if len(paths) != 2 or set(tables) != {len(_JOB_COLUMNS), len(_TASK_COLUMNS)}:
        raise BadInput(f"PAI: {len(paths)} files: give pai_job_table.csv and pai_task_table.csv, as they are")
    arrivals = dict(_arrivals(tables[len(_JOB_COLUMNS)]))
    workers: dict[str, _Role] = {}
    servers: dict[str, _Role] = {}
    for where, row in _rows(tables[len(_TASK_COLUMNS)], _TASK_COLUMNS):
        if row["task_name"] != _NO_TRAINER:
            role = servers if row["task_name"] == _SERVERS else workers
            role.setdefault(row["job_name"], _Role()).add(where, row)
    found = Read()
    for name in sorted(workers.keys() | servers.keys()):
        _add_job(name, arrivals.get(name), workers.get(name, _Role()), servers.get(name, _Role()), found)
    return found


def _add_job(name: str, arrival: float | None, workers: _Role, servers: _Role, found: Read) -> None:
    if arrival is None:
        found.left_out["no start in the job table"] += 1
    elif not workers.count:
        found.left_out["no workers"] += 1
    elif not 0 < workers.end - workers.start < math.inf:
        found.left_out["no start and end"] += 1
    else:
        seconds = workers.end - workers.start
        on_gpus = workers.gpu > 0
        found.jobs.append(
            TracedJob(name, arrival, seconds, workers.count, servers.count, workers.plan, servers.plan, on_gpus=on_gpus)
        )


def _arrivals(path: Path) -> Iterator[tuple[str, float]]:
    for where, row in _rows(path, _JOB_COLUMNS):
        if arrival := amount(row["start_time"], f"{where}: start_time"):
            yield row["job_name"], arrival


def _width(path: Path) -> int:
    for _, cells in _cells(path):
        return len(cells)
    raise BadInput(f"{path}: empty: give a table of the PAI trace")


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    for where, cells in _cells(path):
        if len(cells) != len(columns):
            raise BadInput(f"{where}: {len(cells)} cells, perhaps torn: give {', '.join(columns)}")
        if tuple(cells) != columns:  # the header, where somebody has put it above the table
            yield where, dict(zip(columns, cells, strict=True))


def _cells(path: Path) -> Iterator[tuple[str, list[str]]]:
    try:
        rows = csv.reader(io.StringIO(read_text(path, MOST_BYTES)))
        yield from ((f"{path}:{rows.line_num}", cells) for cells in rows if cells)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path}: {error}") from error
