"""This module reads workloads of Pollux (Qiao et al., OSDI 2021) and Sia (Jayaram Subramanya et al., SOSP 2023).

The columns are those of the files below `simulator/workloads` of https://github.com/petuum/adaptdl (branch
osdi21-artifact) and `sia-simulator/workloads` of https://github.com/siasosp23/artifacts:
`name,time,application,num_replicas,batch_size`, in some of Sia's also `category`.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.sim.convert.filling import MOST_BYTES, Read, TracedJob, amount
from elastic_ps.system.bounded_files import read_text

APPLICATIONS: Mapping[str, tuple[str, float]] = {
    "imagenet": ("resnet-50", 300.0),
    "yolov3": ("vgg-16", 30.0),
    "bert": ("seq2seq", 3.0),
    "deepspeech2": ("wlm", 3.0),
    "cifar10": ("resnext-110", 0.5),
    "ncf": ("dssm", 0.5),
    "gpt_pmp": ("seq2seq", 300.0),
}
"""By application: the nearest model of the catalogue, and GPU hours from the middle of the class for which Pollux's own
generator (`simulator/workload.py`) draws it: up to 1, 10, 100 and 1,000. Sia's gpt_pmp counts as the largest."""

RULES = (
    "id, arrival: name and time",
    "workers: num_replicas; each takes 2 cpu and 1 gpu; batch_size and category are not used",
    "model: " + ", ".join(f"{name} is {model}" for name, (model, _) in APPLICATIONS.items()),
    "time: GPU hours of the application divided by num_replicas; GPU hours: "
    + ", ".join(f"{name} {hours:g}" for name, (_, hours) in APPLICATIONS.items()),
)

_COLUMNS = ("name", "time", "application", "num_replicas")
_WORKER = {"cpu": 2, "gpu": 1}
_HOUR = 3600.0


def read(paths: Sequence[Path]) -> Read:
    """Return the jobs of one workload.

    Raises:
        BadInput: with file, line and reason.
    """
    if len(paths) != 1:
        raise BadInput(f"Pollux: {len(paths)} files: give one, each is a workload of its own")
    path = paths[0]
    found = Read()
    try:
        rows = csv.DictReader(io.StringIO(read_text(path, MOST_BYTES)), strict=True)
        if missing := [name for name in _COLUMNS if name not in (rows.fieldnames or ())]:
            raise BadInput(f"{path}:1: no column {', '.join(missing)}: give {', '.join(_COLUMNS)}")
        found.jobs += [_read_job(f"{path}:{rows.line_num}", dict(row)) for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path}: {error}") from error
    return found


def _read_job(where: str, row: Mapping[str | None, str | None]) -> TracedJob:
    time = amount(row["time"], f"{where}: time")
    replicas = amount(row["num_replicas"], f"{where}: num_replicas")
    if None in row or None in row.values() or time is None or not replicas or replicas != int(replicas):
        raise BadInput(f"{where}: not a job, perhaps torn: give {', '.join(_COLUMNS)}, of num_replicas at least 1")
    application = str(row["application"])
    if application not in APPLICATIONS:
        raise BadInput(f"{where}: unknown application {application}: there are {', '.join(APPLICATIONS)}")
    model, hours = APPLICATIONS[application]
    return TracedJob(str(row["name"]), time, hours * _HOUR / replicas, int(replicas), worker=_WORKER, model=model)
