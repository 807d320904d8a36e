"""This module says where the output of jobs' nodes lies."""

from pathlib import Path


def node_log(folder: Path, job: str, node: str) -> Path:
    """Return the file of one node's output, of a job's last start.

    Args:
        folder: the folder of the cluster's state.
        job: the job's name.
        node: by its id, as in w0.
    """
    return folder / "elastic_ps" / "jobs" / job / "logs" / f"{node}.log"
