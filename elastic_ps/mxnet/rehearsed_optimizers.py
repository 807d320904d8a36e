"""This module gives optimizers the numbers back that they had before the rehearsal, when that is over."""

from typing import Any

import mxnet as mx

from elastic_ps.system.process.quick_end import script_objects
from elastic_ps.worker.script.rehearsal_undo import Undo

_LEFT = ("num_update", "begin_num_update", "rescale_grad")
"""Counts, and what Trainer sets in its first step and refuses to change in a later one."""


def note_optimizers() -> Undo:
    """Note the numbers and the schedules of all optimizers that there are; return what puts them back."""
    noted = [(each, _noted(each)) for each in script_objects() if issubclass(type(each), mx.optimizer.Optimizer)]
    schedules = {id(values["lr_scheduler"]): values["lr_scheduler"] for _, values in noted if "lr_scheduler" in values}
    rates = [(each, each.base_lr) for each in schedules.values() if hasattr(each, "base_lr")]

    def put_back() -> None:
        for optimizer, values in noted:
            vars(optimizer).update(values)
        for schedule, rate in rates:
            schedule.base_lr = rate

    return put_back


def _noted(optimizer: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(optimizer).items()
        if name not in _LEFT and (value is None or isinstance(value, int | float) or name == "lr_scheduler")
    }
