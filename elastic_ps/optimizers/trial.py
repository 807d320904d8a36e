"""A trial finds out whether this server can run an optimizer, before the job relies on it."""

from collections.abc import Iterable, Mapping

import numpy as np

from elastic_ps.core.errors import ConfigurationError, RuleFailed
from elastic_ps.core.module_file import ModuleFile
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.optimizers import make_rule
from elastic_ps.optimizers.gradient_sum import DType
from elastic_ps.optimizers.rule import Rule

_ELEMENTS = 16


def trial(text: str, dtypes: Iterable[str], modules: Mapping[str, ModuleFile]) -> str:
    """Return why this server cannot run an optimizer; "": it made one update of scratch memory in each element type.

    Args:
        text: as in `OptimizerSpec.to_json`.
        dtypes: numpy's names of the element types of the tensors that it is to update.
        modules: the modules that users' rules may come from.
    """
    try:
        spec = OptimizerSpec.from_json(text)
        if spec is None:
            return "it is no optimizer"
        rule = make_rule(spec, modules)
        for dtype in dtypes:
            _update_once(spec.name, rule, np.dtype(dtype))
    except (ConfigurationError, RuleFailed) as error:
        return str(error)
    return ""


def _update_once(name: str, rule: Rule, dtype: DType) -> None:
    """Do what a server does with padding between blocks, which is zero and has to stay so."""
    try:
        states = {state: np.zeros(_ELEMENTS, kind) for state, kind in rule.states(dtype)}
    except ConfigurationError:
        return  # only keys of this type cannot be pushed; the server says so where one is
    value, gradient = np.zeros(_ELEMENTS, dtype), np.zeros(_ELEMENTS, dtype)
    gradient.flags.writeable = False
    rule.init(states, value)
    rule.update(value, gradient, states, 1, Hyper())
    changed = [part for part, array in {"value": value, **states}.items() if array.any()]
    if changed:
        raise ConfigurationError(
            f"optimizer {name!r} changes {', '.join(changed)} where value, gradient and states are 0, as they are in "
            "the padding between blocks: let such elements be 0 afterwards"
        )
