"""A `Treatment` says how blocks are updated: by which rule, with which factors, beside which state arrays."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from elastic_ps.core.errors import ConfigurationError, RuleFailed
from elastic_ps.core.model import Model, Tensor
from elastic_ps.core.module_file import ModuleFile
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.optimizers import Rule, make_rule
from elastic_ps.optimizers.gradient_sum import DType

StateLayout = tuple[tuple[str, DType], ...]


@dataclass(frozen=True)
class Treatment:
    """A `Treatment` is what blocks have in common that are updated by one call.

    Attributes:
        layout: number of the state layout: (dtype, store, auxiliary).
        dtype: the dtype of the values.
        auxiliary: a running statistic.
        rule: None: the aggregate becomes the value.
        refusal: why a gradient for these blocks cannot be taken; empty: it can.
    """

    layout: int
    dtype: DType
    auxiliary: bool
    rule: Rule | None
    lr_mult: float = 1.0
    wd_mult: float = 1.0
    group: int = 0  # of parameters, whose numbers stand in `Hyper.groups`
    whole: int = -1  # tensor index where the rule needs the tensor alone
    refusal: str = ""

    def takes_rows(self, step: Hyper | None) -> bool:
        """Return whether a gradient of some rows leaves the others as they are."""
        return self.rule is not None and step is not None and self.rule.skips_absent_rows(self.hyper(step))

    def lack(self, step: Hyper | None, key: str) -> str:
        """Return what a step's values lack for an update of `key`; "" where nothing."""
        if self.rule is None:
            return ""
        if step is None:
            return f"key {key}: the push has no hyperparameters, which come with the chief's"
        if step.groups and self.group >= len(step.groups):
            return f"key {key}: it is in parameter group {self.group}, and the push has {len(step.groups)}"
        return ""

    def hyper(self, step: Hyper) -> Hyper:
        """Return the step's values with this key's own factors, or as its group's."""
        if step.groups:
            own = step.groups[self.group]
            return replace(step, lr=own.get("lr", step.lr), wd=own.get("weight_decay", step.wd), groups=(own,))
        if self.lr_mult == self.wd_mult == 1.0:
            return step
        return replace(step, lr=step.lr * self.lr_mult, wd=step.wd * self.wd_mult)


class Treatments:
    """`Treatments` numbers the treatments of a job's tensors: equal ones have one number.

    Args:
        modules: the modules that users' optimizers may come from.

    Attributes:
        of_tensor: by tensor index, the number of its treatment.
    """

    def __init__(self, modules: Mapping[str, ModuleFile]):
        self.of_tensor: list[int] = []
        self._modules = modules
        self._specs: dict[int, OptimizerSpec] = {}
        self._rules: dict[int, Rule] = {}
        self._numbers: dict[Treatment, int] = {}
        self._known: list[Treatment] = []
        self._layouts: dict[tuple[str, int, bool], int] = {}
        self._states: dict[int, StateLayout] = {}

    def __getitem__(self, number: int) -> Treatment:
        return self._known[number]

    def states(self, layout: int) -> StateLayout:
        """Return names and dtypes of the state arrays of a layout."""
        return self._states.get(layout, ())

    def layouts(self) -> Iterator[tuple[int, int, StateLayout]]:
        """Yield the layouts that have state arrays: number, bytes of an element of the values, `states`."""
        for (dtype, _, _), number in self._layouts.items():
            if self.states(number):
                yield number, np.dtype(dtype).itemsize, self.states(number)

    def grow(self, model: Model, optimizers: Sequence[str]) -> None:
        """Take over a model that has grown at its end, and optimizers (JSON, by key store); a store's first one stays.

        Raises:
            ConfigurationError: an optimizer that this server cannot run.
        """
        for store, text in enumerate(optimizers):
            spec = OptimizerSpec.from_json(text)
            if spec is not None and store not in self._specs:
                self._rules[store] = make_rule(spec, self._modules)
                self._specs[store] = spec
        self.of_tensor = [self._number(self._treat(model, index)) for index in range(len(model.tensors))]

    def _number(self, treatment: Treatment) -> int:
        number = self._numbers.setdefault(treatment, len(self._known))
        if number == len(self._known):
            self._known.append(treatment)
        return number

    def _treat(self, model: Model, index: int) -> Treatment:
        tensor = model.tensors[index]
        dtype = np.dtype(tensor.dtype)
        layout = self._layouts.setdefault((tensor.dtype, tensor.store, tensor.auxiliary), len(self._layouts))
        plain = Treatment(layout, dtype, tensor.auxiliary, None)
        rule = self._rules.get(tensor.store)
        if rule is None or tensor.auxiliary:
            return plain
        refusal = _refusal(model, index, rule)
        if refusal:
            return replace(plain, refusal=refusal)
        self._states[layout] = rule.states(dtype)
        factors = self._specs[tensor.store].keys.get(tensor.key, {})
        return replace(
            plain,
            rule=rule,
            lr_mult=factors.get("lr_mult", 1.0),
            wd_mult=factors.get("wd_mult", 1.0),
            group=int(factors.get("group", 0)),
            whole=-1 if rule.divisible else index,
        )


def _refusal(model: Model, index: int, rule: Rule) -> str:
    """Return why gradients of a tensor cannot be taken; "" where they can."""
    tensor: Tensor = model.tensors[index]
    if not rule.divisible and len(model.blocks_of[index]) > 1:
        return (
            f"key {tensor.name}: {rule.name} needs whole tensors, but this one is cut into "
            f"{len(model.blocks_of[index])} blocks: set the optimizer before the first init"
        )
    try:
        rule.states(np.dtype(tensor.dtype))
    except (ConfigurationError, RuleFailed) as error:
        return f"key {tensor.name}: {error}"
    return ""
