"""Users' rules are loaded by name. Whatever one raises is a `RuleFailed` that names it: its code may do anything."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from elastic_ps.core.errors import ConfigurationError, RuleFailed
from elastic_ps.core.module_file import ModuleFile
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.core.segments import Array
from elastic_ps.optimizers.gradient_sum import DType, GradientSum
from elastic_ps.optimizers.rule import Rule
from elastic_ps.system.module_files import load


class OwnRule(Rule):
    """An `OwnRule` is a user's rule by its name in the job.

    Args:
        name: "module:Class".
        rule: an instance of it.
    """

    def __init__(self, name: str, rule: Rule):
        self.name = name
        self._rule = rule
        self.divisible = rule.divisible  # type: ignore[misc]  # of this rule, as it was of its class

    def states(self, dtype: DType) -> tuple[tuple[str, DType], ...]:
        """See `Rule.states`."""
        with named(self.name, "states"):
            return tuple((str(name), np.dtype(kind)) for name, kind in self._rule.states(dtype))

    def init(self, states: dict[str, Array], value: Array) -> None:
        """See `Rule.init`."""
        with named(self.name, "init"):
            self._rule.init(states, value)

    def skips_absent_rows(self, hyper: Hyper) -> bool:
        """See `Rule.skips_absent_rows`."""
        with named(self.name, "skips_absent_rows"):
            return bool(self._rule.skips_absent_rows(hyper))

    def update(self, value: Array, gradient: Array, states: dict[str, Array], count: int, hyper: Hyper) -> None:
        """See `Rule.update`."""
        with named(self.name, f"update {count}"):
            self._rule.update(value, gradient, states, count, hyper)

    def apply(
        self, old: Array, new: Array, aggregate: GradientSum, states: dict[str, Array], count: int, hyper: Hyper
    ) -> None:
        """See `Rule.apply`."""
        with named(self.name, f"update {count}"):
            self._rule.apply(old, new, aggregate, states, count, hyper)


@contextmanager
def named(name: str, what: str) -> Iterator[None]:
    """Say whose code failed, and in what.

    Raises:
        RuleFailed: instead of whatever it was; what a rule refuses, and a lack of memory, is left as it is.
    """
    try:
        yield
    except (ConfigurationError, RuleFailed, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        raise RuleFailed(f"optimizer {name!r} fails in {what}: {error!r}") from error


def own_rule(spec: OptimizerSpec, modules: Mapping[str, ModuleFile]) -> Rule:
    """Return the user's rule that `spec` names; see `make_rule`."""
    module, _, name = spec.name.partition(":")
    if module not in modules:
        raise ConfigurationError(
            f"optimizer {spec.name!r}: this server may not load module {module!r}; "
            f"start it with --optimizer-module {module}"
        )
    try:
        rule = getattr(load(modules[module]), name)
    except ConfigurationError as error:
        raise ConfigurationError(f"optimizer {spec.name!r}: {error}") from error
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"optimizer {spec.name!r} cannot be loaded on this server: {error!r}") from error
    if not (isinstance(rule, type) and issubclass(rule, Rule)):
        raise ConfigurationError(f"optimizer {spec.name!r} is no subclass of elastic_ps.optimizers.Rule")
    try:
        return OwnRule(spec.name, rule(**spec.args))
    except ConfigurationError as error:
        raise ConfigurationError(f"optimizer {spec.name!r}: {error}") from error
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"optimizer {spec.name!r} cannot be made: {error!r}") from error
