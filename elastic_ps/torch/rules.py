"""This module says PyTorch's optimizers in the servers' terms: which rule they run, and the numbers of each step.

Servers run no code of the script. They know exactly PyTorch's classes below, or a class that names its own rule::

    class Mine(torch.optim.Optimizer):
        elastic_rule = "my_rules:Mine"  # servers run with --optimizer-module my_rules; see elastic_ps.optimizers.Rule

        def elastic_args(self):  # optional: the rule's keyword arguments
            return {"beta": self.defaults["beta"]}
"""

from collections.abc import Collection, Mapping, Sequence
from math import isfinite
from typing import Any

import torch

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.core.script_arguments import is_number_of_numpy
from elastic_ps.optimizers.pytorch import TORCH_RULES

Group = Mapping[str, Any]

Numbers = Mapping[str, float]

_RULES: dict[type, str] = {
    torch.optim.SGD: "torch.SGD",
    torch.optim.Adam: "torch.Adam",
    torch.optim.AdamW: "torch.Adam",
    torch.optim.Adagrad: "torch.Adagrad",
    torch.optim.RMSprop: "torch.RMSprop",
    torch.optim.Adadelta: "torch.Adadelta",
    torch.optim.Adamax: "torch.Adamax",
    torch.optim.NAdam: "torch.NAdam",
    torch.optim.RAdam: "torch.RAdam",
    torch.optim.Rprop: "torch.Rprop",
    torch.optim.ASGD: "torch.ASGD",
}

_REASONS = {
    "Muon": "multiplies whole matrices in bfloat16, and servers hold blocks of float32",
    "Adafactor": "keeps a state for each row and column, and servers have states of each element",
    "LBFGS": "calls the loss several times in a step, which all workers would have to do at once",
    "SparseAdam": "keeps rows apart by its own gradient; dense Adam, or SGD and Adagrad with sparse gradients, do run",
}
"""Classes of `torch.optim` that servers have no rule for, and why."""

_NOWHERE = ("LBFGS", "SparseAdam")
"""Those that jobs without servers refuse, too."""

_FLAGS = {
    "maximize": "maximize",
    "nesterov": "nesterov",
    "amsgrad": "amsgrad",
    "centered": "centered",
    "decoupled": "decoupled_weight_decay",
}
"""A rule's argument -> what a group calls it."""

_PAIRS = {
    "betas": ("beta1", "beta2"),
    "etas": ("etaminus", "etaplus"),
    "step_sizes": ("step_size_min", "step_size_max"),
}


def translate(optimizer: torch.optim.Optimizer, names: Mapping[torch.Tensor, str]) -> OptimizerSpec:
    """Return what the servers are told of an optimizer, once.

    Args:
        optimizer: the script's own.
        names: the key of each parameter.

    Raises:
        ConfigurationError: the servers have no rule for it, or not for what it was made with.
    """
    groups = optimizer.param_groups
    keys = {
        names[parameter]: {"group": float(number)}
        for number, group in enumerate(groups)
        for parameter in group["params"]
        if number
    }
    kind = type(optimizer)
    if "elastic_rule" in vars(kind):
        args = dict(optimizer.elastic_args()) if hasattr(optimizer, "elastic_args") else {}
        return OptimizerSpec(str(vars(kind)["elastic_rule"]), args, keys)
    if kind not in _RULES:
        raise ConfigurationError(_unknown(kind))
    name = _RULES[kind]
    _check_groups(kind.__name__, groups)
    known = TORCH_RULES[name].__dataclass_fields__
    args = {ours: bool(groups[0][theirs]) for ours, theirs in _FLAGS.items() if ours in known and theirs in groups[0]}
    if "momentum" in known:
        args["momentum"] = any(group["momentum"] for group in groups)
    return OptimizerSpec(name, args, keys)


def check_hooks(optimizer: torch.optim.Optimizer) -> None:
    """Refuse hooks of an optimizer whose own `step` is never called, as servers update.

    Args:
        optimizer: the script's own.

    Raises:
        ConfigurationError: it has some.
    """
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        raise ConfigurationError(
            f"{type(optimizer).__name__} has hooks of its step, and servers make that, so that nobody calls them: "
            "register them with the elastic.Optimizer, whose step() is called in each batch, or train with --mode "
            "all-reduce"
        )


def check_flags(optimizer: torch.optim.Optimizer, spec: OptimizerSpec) -> None:
    """Refuse a flag that has changed since the servers were told of the optimizer: they go on by the one that was.

    Args:
        optimizer: the script's own.
        spec: of it, as the servers know it.

    Raises:
        ConfigurationError: names the flag.
    """
    if spec.name not in TORCH_RULES:
        return
    for index, group in enumerate(optimizer.param_groups):
        for ours, theirs in _FLAGS.items():
            known = spec.args.get(ours)
            if known is not None and bool(group.get(theirs, known)) != known:
                raise ConfigurationError(
                    f"parameter group {index} has {theirs}={group[theirs]} now, and the optimizer was made with "
                    f"{known}, which servers do not change while they train: make it so from the start (in place of "
                    "maximize the loss may be negated), or train with --mode all-reduce"
                )


def check_loaded(optimizer: torch.optim.Optimizer, names: Mapping[torch.Tensor, str], spec: OptimizerSpec) -> None:
    """Refuse parameter groups that have been loaded, where they are no groups of what the servers run.

    Args:
        optimizer: the script's own, which has loaded them.
        names: the key of each parameter.
        spec: of the optimizer, as the servers know it.

    Raises:
        ConfigurationError: they are another optimizer's, or have other flags.
    """
    missing = {name for group in optimizer.param_groups for name in optimizer.defaults.keys() - group.keys()}
    if missing:
        raise ConfigurationError(
            f"load_state_dict: the groups to load have no {min(missing)}, so they are not those of an optimizer "
            f"{type(optimizer).__name__}; load what one of the same class has saved"
        )
    if translate(optimizer, names) != spec:
        raise ConfigurationError(
            "load_state_dict: the groups to load have other settings (momentum, amsgrad and the like) than the "
            "optimizer was made with; make it with the same ones"
        )


def hyper(optimizer: torch.optim.Optimizer, spec: OptimizerSpec, first: Sequence[Numbers]) -> Hyper:
    """Return the values of a step: the present numbers of each parameter group.

    Args:
        optimizer: the script's own.
        spec: of it, as the servers know it.
        first: the groups' numbers in the rehearsal, as this function has returned them; (): they are asked for.

    Raises:
        ConfigurationError: a number that the rule cannot take.
    """
    rule = TORCH_RULES.get(spec.name)
    found = []
    for index, group in enumerate(optimizer.param_groups):
        numbers = numbers_of(group)
        if rule is not None:
            _check_read(index, group, numbers, rule.numbers)
            numbers = {name: value for name, value in numbers.items() if name in rule.numbers}
            if numbers.get("momentum") and not spec.args.get("momentum", True):
                raise ConfigurationError(
                    f"parameter group {index} has momentum {numbers['momentum']}, but none had any when the job began: "
                    "make the optimizer with a momentum above 0"
                )
            if first and spec.name == "torch.Rprop":  # which takes it for its first step alone
                numbers["lr"] = first[index]["lr"]
            if first and spec.name == "torch.NAdam":
                _check_momenta(index, numbers, first[index])
            if first and spec.name == "torch.SGD":
                _check_dampening(index, numbers, first[index])
        for name, value in numbers.items():
            if not isfinite(value):
                raise ConfigurationError(f"parameter group {index}: {name} is {value}; give a finite number")
        found.append(numbers)
    return Hyper(groups=tuple(found))


def _check_momenta(index: int, now: Numbers, first: Numbers) -> None:
    """Refuse other momenta of NAdam, whose servers reckon the product of all so far from the present ones.

    Args:
        index: of the parameter group.
        now: its numbers.
        first: its numbers in the rehearsal.
    """
    for name, theirs in (("beta1", "betas[0]"), ("momentum_decay", "momentum_decay")):
        if now[name] != first[name]:
            raise ConfigurationError(
                f"parameter group {index} of NAdam has {theirs}={now[name]} now, and had {first[name]} when the job "
                "began, and servers do not know which product its momenta have had: leave it as it is (give a "
                "OneCycleLR or CyclicLR cycle_momentum=False), or train with --mode all-reduce"
            )


def _check_dampening(index: int, now: Numbers, first: Numbers) -> None:
    """Refuse a momentum of SGD that begins later and is dampened: the first velocity is not, and servers count updates.

    Args:
        index: of the parameter group.
        now: its numbers.
        first: its numbers in the rehearsal.
    """
    if now["momentum"] and now["dampening"] and not first["momentum"]:
        raise ConfigurationError(
            f"parameter group {index} of SGD has momentum={now['momentum']} now, and had none when the job began: with "
            f"dampening={now['dampening']} PyTorch begins its velocity with the whole gradient, and servers do not "
            "know that this is its first: begin with a momentum, leave dampening out, or train with --mode all-reduce"
        )


def numbers_of(group: Group) -> dict[str, float]:
    """Return the numbers of a parameter group by name, pairs as their parts; numpy's are numbers, too."""
    numbers: dict[str, float] = {}
    for name, value in group.items():
        if name in _PAIRS:
            numbers.update(zip(_PAIRS[name], map(float, value), strict=True))
        elif is_number_of_numpy(value) or (
            isinstance(value, int | float | torch.Tensor) and not isinstance(value, bool)
        ):
            numbers[name] = float(value)
    return numbers


def _check_read(index: int, group: Group, numbers: Numbers, wanted: Collection[str]) -> None:
    """Refuse a setting that is no number: servers would take the rule's default for it.

    Args:
        index: of the parameter group.
        group: its settings.
        numbers: those of them that could be read.
        wanted: which the rule takes.
    """
    for name in wanted:
        if name in group and name not in numbers:
            raise ConfigurationError(f"parameter group {index}: {name} is {group[name]!r:.80}; give a number")


def _check_groups(kind: str, groups: Sequence[Group]) -> None:
    """Refuse settings that a rule on servers cannot have; `kind` is the optimizer's class."""
    for theirs in _FLAGS.values():
        found = {bool(group[theirs]) for group in groups if theirs in group}
        if len(found) > 1:
            raise ConfigurationError(
                f"{theirs} differs between the parameter groups of {kind}: give all groups the same, or make two "
                "optimizers, each wrapped in an elastic.Optimizer"
            )
    for index, group in enumerate(groups):
        if group.get("differentiable"):
            raise ConfigurationError(f"{kind}(differentiable=True): servers update, no graph goes through a step")
        if "eps" in group and not float(group["eps"]) > 0:
            raise ConfigurationError(
                f"parameter group {index} of {kind} has eps={group['eps']}: elements without a gradient would become "
                "nan; give eps above 0"
            )
        if "step_sizes" in group and not min(group["step_sizes"]) > 0:
            raise ConfigurationError(f"{kind}(step_sizes={group['step_sizes']}): give two numbers above 0")
        if group.get("initial_accumulator_value"):
            raise ConfigurationError(
                f"{kind}(initial_accumulator_value={group['initial_accumulator_value']}): servers begin with 0; "
                "leave it out"
            )


def _unknown(kind: type) -> str:
    base = next((known.__name__ for known in kind.__mro__ if known in _RULES), None)
    reason = f"is a subclass of {base} whose code stays in this process" if base else "is not known to the servers"
    if kind.__module__.startswith("torch.optim") and kind.__name__ in _REASONS:
        reason = f"is not known to the servers: it {_REASONS[kind.__name__]}"
    return (
        f"optimizer {kind.__module__}.{kind.__qualname__} {reason}. Use one of torch.optim's "
        f"{', '.join(sorted(known.__name__ for known in _RULES))}, or give the class an attribute "
        'elastic_rule = "module:Class" and start the servers with --optimizer-module '
        "(docs/guides/write-an-optimizer.md)"
        f"{'' if kind.__name__ in _NOWHERE else '; or train without servers, by elasticrun --mode all-reduce'}"
    )
