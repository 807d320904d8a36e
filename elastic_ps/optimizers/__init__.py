"""The servers' optimizers are rules over flat arrays: built-in ones, and users' own."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.module_file import NO_MODULES, ModuleFile
from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.optimizers.accumulate import Accumulate
from elastic_ps.optimizers.adam import Adam, AdamW
from elastic_ps.optimizers.adaptive import AdaGrad, Ftrl, RMSProp
from elastic_ps.optimizers.lamb import LAMB
from elastic_ps.optimizers.momentum import NAG, SGD
from elastic_ps.optimizers.pytorch import TORCH_RULES
from elastic_ps.optimizers.rule import BuiltIn, Rule
from elastic_ps.optimizers.user_rule import own_rule

__all__ = ["Rule", "make_rule"]

_RULES: dict[str, type[BuiltIn]] = {
    "sgd": SGD,
    "nag": NAG,
    "adam": Adam,
    "adamw": AdamW,
    "rmsprop": RMSProp,
    "adagrad": AdaGrad,
    "ftrl": Ftrl,
    "lamb": LAMB,
    "test": Accumulate,
    **TORCH_RULES,
}


def make_rule(spec: OptimizerSpec, modules: Mapping[str, ModuleFile] = NO_MODULES) -> Rule:
    """Return the rule that `spec` names.

    Args:
        spec: a built-in name or "module:Class".
        modules: the modules that users' rules may come from (the server's `--optimizer-module`).

    Raises:
        ConfigurationError: an unknown name, module or argument; the message says what is there.
    """
    if ":" in spec.name:
        return own_rule(spec, modules)
    rule = _RULES.get(spec.name)
    if rule is None:
        raise ConfigurationError(
            f"unknown optimizer {spec.name!r}: the servers have {', '.join(sorted(_RULES))}; "
            'a rule of your own goes by "module:Class" and --optimizer-module'
        )
    _check_arguments(spec, rule)
    return rule(**spec.args)


def _check_arguments(spec: OptimizerSpec, rule: type[BuiltIn]) -> None:
    known = {field.name: field.default for field in fields(rule)}
    for name, value in spec.args.items():
        if name not in known:
            raise ConfigurationError(
                f"optimizer {spec.name}: unknown argument {name!r}; it takes {', '.join(sorted(known))}"
            )
        if not _fits(value, known[name]):
            raise ConfigurationError(f"optimizer {spec.name}: {name} must be {_kind(known[name])}, not {value!r}")


def _fits(value: Any, default: Any) -> bool:
    if isinstance(default, bool):
        return isinstance(value, bool)
    if value is None:
        return default is None
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and not isinstance(default, int))


def _kind(default: Any) -> str:
    if isinstance(default, bool):
        return "true or false"
    if default is None:
        return "a number or null"
    return "a whole number" if isinstance(default, int) else "a number"
