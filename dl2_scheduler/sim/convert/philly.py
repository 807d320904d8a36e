"""This module reads Microsoft's Philly trace (Jeon et al., USENIX ATC 2019): `cluster_job_log`.

The format is that of the README of https://github.com/msr-fiddle/philly-traces: a JSON list of jobs with `jobid`,
`submitted_time` and `attempts`, each with `start_time`, `end_time` and a `detail` of machines and their `gpus`. An
attempt may lack either time, a job may have no attempt.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.sim.convert.filling import MOST_BYTES, Read, TracedJob
from elastic_ps.system.bounded_files import read_text

RULES = (
    "id, arrival: jobid and submitted_time",
    "workers: one for each GPU of the last attempt; each takes 2 cpu and 1 gpu",
    "time: the sum over all attempts; the work of a job that was killed or failed is what it did until then",
    "left out: jobs without a submission, without an attempt that has both times, without GPUs",
)

_WORKER = {"cpu": 2, "gpu": 1}


def read(paths: Sequence[Path]) -> Read:
    """Return the jobs of one or several logs.

    Raises:
        BadInput: with the file, the job and the reason.
    """
    found = Read()
    for path in paths:
        for number, job in enumerate(_load(path), 1):
            where = f"{path}: job {number}"
            try:
                _read_job(job, found)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
                raise BadInput(f"{where}: not as in Philly's cluster_job_log: {repr(error)[:200]}") from error
    return found


def _load(path: Path) -> list[Any]:
    try:
        jobs = json.loads(read_text(path, MOST_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not a JSON file, perhaps torn: {error}") from error
    if not isinstance(jobs, list):
        raise BadInput(f"{path}: not a list of jobs: give Philly's cluster_job_log")
    return jobs


def _read_job(job: Any, found: Read) -> None:
    submitted = _time(job["submitted_time"])
    spans = [(_time(attempt["start_time"]), _time(attempt["end_time"])) for attempt in job["attempts"]]
    seconds = sum((end - start).total_seconds() for start, end in spans if start and end and end > start)
    gpus = sum(len(machine["gpus"]) for machine in job["attempts"][-1]["detail"]) if job["attempts"] else 0
    if submitted is None:
        found.left_out["no submission"] += 1
    elif seconds <= 0:
        found.left_out["no attempt with both times"] += 1
    elif not gpus:
        found.left_out["no GPUs"] += 1
    else:
        # Seconds of the wall clock, as the log writes them: it has no time zone.
        arrival = (submitted - datetime(1970, 1, 1)).total_seconds()
        found.jobs.append(TracedJob(str(job["jobid"]), arrival, seconds, gpus, worker=_WORKER))


def _time(text: Any) -> datetime | None:
    return None if text in (None, "", "None") else datetime.strptime(text, "%Y-%m-%d %H:%M:%S")
