"""This module has what a training script calls; `elastic_ps` itself hands these functions out."""

from elastic_ps.core.script_arguments import whole_number
from elastic_ps.data.sampler import Sampler, epochs
from elastic_ps.system.process.helper_processes import is_helper_process
from elastic_ps.worker.script.worker_job import script_job

__all__ = ["Sampler", "epochs", "init", "is_chief", "num_workers", "rank", "report"]


def init() -> None:
    """Join the job that the environment describes, and return when this worker's peers are ready.

    A process that loads data for a worker imports its script, and joins nothing.

    Raises:
        ConfigurationError: the script was not started by elasticrun.
        CoordinatorLost: the job's coordinator does not answer.
    """
    if not is_helper_process():
        script_job()


def rank() -> int:
    """Return this worker's rank, now; it may change at every step."""
    return script_job().rank


def num_workers() -> int:
    """Return how many workers the job has now; where the script draws its own batches, how many it had at its start."""
    return script_job().num_workers


def is_chief() -> bool:
    """Return True on exactly one worker at any time: the one that evaluates, saves and prints.

    A process that loads data for it is none.
    """
    return not is_helper_process() and script_job().node.is_chief


def report(step: int, **metrics: float) -> None:
    """Hand metrics over to the job's status; the last value of a step counts.

    Args:
        step: as the sampler yielded it.
        metrics: loss=..., accuracy=...: numbers, or arrays of one element. NaN and infinities are shown as they are.

    Raises:
        ConfigurationError: the step is no whole number, a value no number, or a name cannot be sent.
    """
    number = whole_number("report: the step", step, 0)
    script_job().report(number, metrics)
