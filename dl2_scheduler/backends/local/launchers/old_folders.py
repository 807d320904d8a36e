"""This module deletes what earlier starts of a job have left, but for the last: a job may be started again for ever."""

import shutil
from pathlib import Path

from coordinator.ctl.job_folders import read_job
from elastic_ps.system.state_folder import number_aside

_KEPT = 1  # beside the folder of the start before, which the next launcher moves aside


def forget_older(jobs: Path, name: str, identity: str) -> None:
    """Delete the folders that `elasticrun` has moved aside for a job, but for those of its last starts.

    Those of other submissions of its name stay, as do those whose processes run.

    Args:
        jobs: the folder of all jobs.
        name: of the job.
        identity: of its submission, as its launcher was told.
    """
    aside = [job for path in jobs.glob(f"{name}~*") if (job := read_job(path)) is not None]
    own = sorted((job for job in aside if job.identity == identity), key=lambda job: number_aside(job.folder))
    for job in own[: max(0, len(own) - _KEPT)]:
        if not job.processes_alive:
            shutil.rmtree(job.folder, ignore_errors=True)
