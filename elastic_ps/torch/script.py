"""This module has what a training script of PyTorch calls beside the optimizer and the loader."""

from collections.abc import Iterator
from typing import Any

import torch

from elastic_ps import script
from elastic_ps.data.sampler import refuse_past_epochs
from elastic_ps.torch.optimizer import optimizers
from elastic_ps.worker.script.worker_job import script_job


def epochs(count: int) -> Iterator[int]:
    """Yield the epochs from the job's present one to `count` - 1; see `elastic_ps.epochs`.

    It is called where the loop begins: what a script calls from then on belongs to the first epoch.

    Raises:
        ConfigurationError: `count` is no whole number, or below 0; the loop's body does not iterate over an
            `elastic.DataLoader`; a process that loads data has come here; or a loop before this one has trained all
            these epochs.
    """
    numbers, job = script.epochs(count), script_job()
    refuse_past_epochs(job, count, "elastic")
    if _seed not in job.seeders:
        job.seeders.append(_seed)
    if not job.rehearsed:
        for optimizer in optimizers():
            optimizer.begin_loop()
    return numbers


def _seed(number: int) -> None:
    torch.manual_seed(number)


def report(**metrics: Any) -> None:
    """Hand metrics of the step under way, or of the last one, over to the job's status: elastic.report(loss=loss).

    Args:
        metrics: numbers, or tensors of one element. NaN and infinities are shown as they are.

    Raises:
        ConfigurationError: a value is no number, or a name cannot be sent.
    """
    job = script_job()
    number = 0
    if job.spec is not None:
        here = job.place
        done = max(0, job.node.version // job.spec.exchanges - 1)
        number = here.epoch * job.spec.steps_per_epoch + here.step if here else done
    job.report(
        number, {name: value.detach() if isinstance(value, torch.Tensor) else value for name, value in metrics.items()}
    )
