"""This module says how an optimizer travels: as a name and numbers, never as code."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from elastic_ps.core.errors import ConfigurationError

OWN_RULE = "script."
"""With this the names of optimizers begin that only the script runs, see `OptimizerSpec.scripts_own`."""


@dataclass(frozen=True)
class OptimizerSpec:
    """An `OptimizerSpec` describes the optimizer of one key store.

    Attributes:
        name: of a rule that the servers have (`elastic_ps.optimizers`), or "module:Class" for one that the server
            loads from a module it was started with (`--optimizer-module`). "script.Class": see `scripts_own`.
        args: the constants of the rule (momentum, beta1, epsilon ...), JSON values.
        keys: by key as in `Tensor.key`, what differs from 1 of {"lr_mult": x, "wd_mult": y}, and "group", the number
            of the key's parameter group, where it is not 0.

    What may change while training (lr, wd, rescale_grad, clip_gradient, the numbers of parameter groups) is no part
    of it: the chief sends it with its push of each step (`Hyper`).
    """

    name: str
    args: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, dict[str, float]] = field(default_factory=dict)

    @staticmethod
    def scripts_own(class_name: str) -> "OptimizerSpec":
        """Return what stands for an optimizer that no server can run: the script does, in a job without servers."""
        return OptimizerSpec(OWN_RULE + class_name)

    @property
    def is_scripts_own(self) -> bool:
        """Return whether only the script can run it."""
        return self.name.startswith(OWN_RULE)

    @property
    def class_name(self) -> str:
        """The name of the class, as the script knows it, of one that only the script can run."""
        return self.name.removeprefix(OWN_RULE)

    def to_json(self) -> str:
        """Encode it as canonical text: equal specs give equal text."""
        return json.dumps({"name": self.name, "args": self.args, "keys": self.keys}, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> "OptimizerSpec | None":
        """Decode a spec; "" stands for no optimizer: the store only sums.

        Raises:
            ConfigurationError: the text is no spec.
        """
        if not text:
            return None
        try:
            value = json.loads(text)
            return OptimizerSpec(str(value["name"]), dict(value["args"]), dict(value["keys"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ConfigurationError(f"not an optimizer: {text[:200]!r} ({error})") from error


@dataclass(frozen=True)
class Hyper:
    """A `Hyper` has the values of one step that may change while training; the chief sends them.

    Attributes:
        lr: learning rate after the schedule, before a key's lr_mult.
        wd: weight decay, before a key's wd_mult.
        rescale_grad: factor on the aggregated gradient.
        clip_gradient: bound on each element after rescaling; None: none.
        max_norm: bound of the norm of all gradients of the exchange, after their aggregation; None: none.
        skip_overflow: an exchange with a gradient that is not finite is skipped: values, states and counts stay.
        factor: on the gradients, as it was decided by the two before; 0: the exchange is skipped; None: undecided.
        groups: for rules whose keys are in parameter groups: by group its numbers, such as {"lr": 0.1, "momentum":
            0.9}. A rule gets those of its key's group, with its lr, and its weight_decay as wd.
    """

    lr: float = 0.01
    wd: float = 0.0
    rescale_grad: float = 1.0
    clip_gradient: float | None = None
    groups: tuple[Mapping[str, float], ...] = ()
    max_norm: float | None = None
    skip_overflow: bool = False
    factor: float | None = None

    @property
    def needs_norm(self) -> bool:
        """Return whether servers may apply gradients only when the norm of all of them is known."""
        return self.factor is None and (self.max_norm is not None or self.skip_overflow)

    def checked(self) -> "Hyper":
        """Return the values, which a frame has to bring.

        Raises:
            ConfigurationError: one of the plain ones is infinite or no number.
        """
        for name in ("lr", "wd", "rescale_grad", "clip_gradient"):
            value = getattr(self, name)
            if value is not None and not isfinite(value):
                raise ConfigurationError(f"the optimizer's {name} is {value}; give a finite number")
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return what stands in a frame's meta."""
        plain = {"lr": self.lr, "wd": self.wd, "rescale_grad": self.rescale_grad, "clip_gradient": self.clip_gradient}
        seldom = {
            "groups": self.groups or None,
            "max_norm": self.max_norm,
            "skip_overflow": self.skip_overflow or None,
            "factor": self.factor,
        }
        return {**plain, **{name: value for name, value in seldom.items() if value is not None}}  # 0 is a factor, too
