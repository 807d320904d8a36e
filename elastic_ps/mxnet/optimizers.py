"""This module says MXNet's optimizers in the servers' terms: what to run, the values of each step, and the state.

MXNet pickles an optimizer and sends the code to its servers. Ours get a name and numbers, so an optimizer must be
one that they know: exactly one of MXNet's classes below (a subclass may change the rule, and its code stays here),
`AdamW` of this module, or a class that names its own rule on the servers::

    class Mine(mx.optimizer.Optimizer):
        elastic_rule = "my_rules:Mine"  # servers run with --optimizer-module my_rules; see elastic_ps.optimizers.Rule

        def elastic_args(self):  # optional: the rule's keyword arguments
            return {"beta": self.beta}
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mxnet as mx
import numpy as np

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.mxnet.schedules import learning_rate, reach_end
from elastic_ps.optimizers import make_rule
from elastic_ps.optimizers.adam import bias_corrected

Key = int | str


class AdamW(mx.optimizer.Optimizer):  # type: ignore[misc]  # mxnet has no types
    """`AdamW` is Adam with decoupled weight decay: `Trainer(params, "adamw", {...})`.

    MXNet 1.9.1 has the operator `contrib.adamw_update` and no class for it; this one runs with every kvstore.

    Args:
        learning_rate: eta of the operator; scales the step and the weight decay.
        correct_bias: scale it by sqrt(1 - beta2^t) / (1 - beta1^t), as MXNet 2's class does.
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        correct_bias: bool = True,
        **kwargs: Any,
    ):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.correct_bias = correct_bias

    def create_state(self, index: Key, weight: Any) -> tuple[Any, Any]:
        """Return mean and variance, zeros in the weight's shape and dtype."""
        return mx.nd.zeros_like(weight), mx.nd.zeros_like(weight)

    def update(self, index: Key, weight: Any, grad: Any, state: tuple[Any, Any]) -> None:
        """Make one step in this process.

        Args:
            index: of the weight.
            weight: is updated in place.
            grad: its gradient, of its shape.
            state: mean and variance, updated in place.
        """
        self._update_count(index)
        rate = self._get_lr(index)
        if self.correct_bias:
            rate = bias_corrected(rate, self.beta1, self.beta2, self._index_update_count[index])
        mx.nd.contrib.adamw_update(
            weight,
            grad,
            *state,
            self.rescale_grad,
            lr=1.0,
            eta=rate,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
            wd=self._get_wd(index),
            clip_gradient=self.clip_gradient or -1,
            out=weight,
        )


mx.optimizer.register(AdamW)


@dataclass(frozen=True)
class _Known:
    """A `_Known` class of MXNet's is said in our terms.

    Attributes:
        rule: the servers' name.
        args: the rule's argument -> the optimizer's attribute.
        bare: the state of a key is one array or None, not a tuple.
        master_last: a float32 copy follows the state, where other optimizers have it first.
    """

    rule: str
    args: dict[str, str]
    bare: bool = False
    master_last: bool = False


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_SGD = _Known("sgd", _same("momentum", "lazy_update"), bare=True, master_last=True)
_KNOWN: dict[type, _Known] = {
    mx.optimizer.SGD: _SGD,
    mx.optimizer.ccSGD: _SGD,
    mx.optimizer.NAG: _Known("nag", _same("momentum"), bare=True, master_last=True),
    mx.optimizer.Adam: _Known("adam", _same("beta1", "beta2", "epsilon", "lazy_update")),
    AdamW: _Known("adamw", _same("beta1", "beta2", "epsilon", "correct_bias")),
    mx.optimizer.RMSProp: _Known("rmsprop", _same("gamma1", "gamma2", "epsilon", "centered", "clip_weights")),
    mx.optimizer.AdaGrad: _Known("adagrad", {"eps": "float_stable_eps"}, bare=True),
    mx.optimizer.Ftrl: _Known("ftrl", _same("lamda1", "beta")),
    mx.optimizer.LAMB: _Known(
        "lamb", _same("beta1", "beta2", "epsilon", "lower_bound", "upper_bound", "bias_correction")
    ),
    mx.optimizer.Test: _Known("test", {}, bare=True),
}


def translate(optimizer: Any, key_of_index: Callable[[Key], str]) -> OptimizerSpec:
    """Return what the servers are told of an optimizer, once.

    Args:
        optimizer: an `mx.optimizer.Optimizer`.
        key_of_index: the store's key (as in `Tensor.key`) of an index or name that the optimizer knows.

    Raises:
        ConfigurationError: not an optimizer that the servers know, or an argument that its rule refuses.
    """
    spec = OptimizerSpec(*_rule(optimizer), _multipliers(optimizer, key_of_index))
    if ":" not in spec.name:
        make_rule(spec)
    return spec


def check_dtype(spec: OptimizerSpec, key: str, dtype: str) -> None:
    """Refuse to push a key that the servers could not update.

    Args:
        spec: of the key's store; of a user's own rule only the servers can tell.
        key: for the message.
        dtype: numpy's name.

    Raises:
        ConfigurationError: names the key and the way out.
    """
    if ":" in spec.name:
        return
    try:
        make_rule(spec).states(np.dtype(dtype))
    except ConfigurationError as error:
        raise ConfigurationError(f"key {key}: {error}") from error


def _rule(optimizer: Any) -> tuple[str, dict[str, Any]]:
    kind = type(optimizer)
    if "elastic_rule" in vars(kind):
        return kind.elastic_rule, dict(optimizer.elastic_args()) if hasattr(kind, "elastic_args") else {}
    known = _KNOWN.get(kind)
    if known is None:
        raise ConfigurationError(_unknown(optimizer))
    args = {name: _plain(getattr(optimizer, attribute)) for name, attribute in known.args.items()}
    args["begin_num_update"] = int(optimizer.begin_num_update)
    args["multi_precision"] = bool(optimizer.multi_precision)
    return known.rule, args


def _plain(value: Any) -> Any:
    """Return the Python number of a numpy scalar, which JSON does not take."""
    return value.item() if isinstance(value, np.generic) else value


def _unknown(optimizer: Any) -> str:
    name = f"{type(optimizer).__module__}.{type(optimizer).__qualname__}"
    base = next((kind.__name__ for kind in type(optimizer).__mro__ if kind in _KNOWN), None)
    reason = f"is a subclass of {base} whose code stays in this process" if base else "is not known to the servers"
    return (
        f"optimizer {name} {reason}. Use one of {', '.join(sorted({kind.__name__ for kind in _KNOWN}))}, or give the "
        'class an attribute elastic_rule = "module:Class" and start the servers with --optimizer-module, or use '
        "update_on_kvstore=False, where optimizers run in the workers"
    )


def _multipliers(optimizer: Any, key_of_index: Callable[[Key], str]) -> dict[str, dict[str, float]]:
    """Return each key's factors that differ from 1, by the rules of `Optimizer._get_lrs` and `_get_wds`."""
    tables = {"lr_mult": optimizer.lr_mult, "wd_mult": optimizer.wd_mult}
    keys: dict[str, dict[str, float]] = {}
    for index in {**optimizer.param_dict, **optimizer.idx2name, **tables["lr_mult"], **tables["wd_mult"]}:
        factors = {name: _multiplier(optimizer, index, name, table) for name, table in tables.items()}
        changed = {name: factor for name, factor in factors.items() if factor != 1.0}
        if changed:
            keys[key_of_index(index)] = changed
    return keys


def _multiplier(optimizer: Any, index: Key, name: str, table: dict[Key, float]) -> float:
    if index in optimizer.param_dict:
        return float(getattr(optimizer.param_dict[index], name))
    if index in table:
        return float(table[index])
    return float(table.get(optimizer.idx2name.get(index, index), 1.0))


# ---- the values of a step ------------------------------------------------------------------------------------------


def hyper(optimizer: Any, num_update: int) -> Hyper:
    """Return the values of update `num_update`, counted from 1 after the optimizer's own `begin_num_update`.

    Schedules that keep state (FactorScheduler) are evaluated on a copy: the optimizer does not change.

    Raises:
        ConfigurationError: a value that the rule cannot take.
    """
    bound = optimizer.clip_gradient
    if type(optimizer) is mx.optimizer.AdaGrad and bound is not None and bound < 0:
        raise ConfigurationError(f"clip_gradient must be 0 or more for AdaGrad, not {bound}: use None for no clipping")
    scale = optimizer.rescale_grad
    scale = float(scale.asscalar() if isinstance(scale, mx.nd.NDArray) else scale)
    return Hyper(
        lr=learning_rate(optimizer, optimizer.begin_num_update + num_update),
        wd=float(optimizer.wd),
        rescale_grad=0.0 if type(optimizer) is AdamW and not np.isfinite(scale) else scale,  # leaves it out as well
        clip_gradient=None if bound in (None, np.inf) else float(bound),
    ).checked()


# ---- state files ---------------------------------------------------------------------------------------------------


def to_mxnet_states(optimizer: Any, states: dict[Key, dict[str, Any]]) -> dict[Key, Any]:
    """Return our states as `mx.optimizer.Updater.states` has them, so that its `get_states` writes MXNet's own file.

    The update counts are put into the optimizer, where MXNet keeps them (`get_states(dump_optimizer=True)`).

    Args:
        optimizer: that made the states.
        states: by index, {"count": updates, name: array} as `KeyStore.optimizer_states` gives them.

    Raises:
        ConfigurationError: they are another optimizer's; names the index.
    """
    counts = optimizer._index_update_count
    for index, state in states.items():
        counts[index] = optimizer.begin_num_update + state["count"]
    optimizer.num_update = max([optimizer.num_update, *counts.values()])
    reach_end(optimizer.lr_scheduler, optimizer.num_update)  # is in the file, too
    return {index: _pack(optimizer, index, state) for index, state in states.items()}


def from_mxnet_states(optimizer: Any, states: dict[Key, Any]) -> dict[Key, dict[str, Any]]:
    """Return states that MXNet or we wrote as the servers take them: the inverse of `to_mxnet_states`.

    Where the optimizer knows no update count of an index (it did not come from the file), "count" is absent.

    Raises:
        ConfigurationError: the states are of another optimizer; names the index.
    """
    counts: dict[Key, int] = {}
    for device in optimizer._all_index_update_counts.values():
        counts.update(device)
    result: dict[Key, dict[str, Any]] = {}
    for index, state in states.items():
        result[index] = _unpack(optimizer, index, state)
        if index in counts:
            result[index]["count"] = counts[index] - optimizer.begin_num_update
    return result


def _pack(optimizer: Any, index: Key, state: dict[str, Any]) -> Any:
    arrays = {name: mx.nd.array(value, dtype=value.dtype) for name, value in state.items() if name != "count"}
    known = _KNOWN.get(type(optimizer))
    if known is None:
        return arrays
    master = arrays.pop("master", None)
    names = _slots(optimizer, known)
    if arrays.keys() != set(names):
        raise ConfigurationError(
            f"key {index}: the servers keep {', '.join(arrays) or 'no state'}, but {type(optimizer).__name__} keeps "
            f"{', '.join(names) or 'none'}: another worker's optimizer was first; give all workers the same one"
        )
    inner = tuple(arrays[name] for name in names) if not known.bare else arrays[names[0]] if names else None
    if master is None:
        return inner
    return (inner, master) if known.master_last else (master, inner)


def _unpack(optimizer: Any, index: Key, state: Any) -> dict[str, Any]:
    known = _KNOWN.get(type(optimizer))
    if known is None:
        return {name: value.asnumpy() for name, value in state.items()}
    names = _slots(optimizer, known)
    arrays: dict[str, Any] = {}
    double = optimizer.multi_precision and isinstance(state, tuple) and len(state) == 2
    if double and (known.bare or isinstance(state[1], tuple)):
        arrays["master"], state = reversed(state) if known.master_last else state
    if known.bare:
        state = () if state is None else (state,)
    if not (isinstance(state, tuple) and len(state) == len(names) and all(map(_is_array, state))):
        raise ConfigurationError(
            f"key {index}: the optimizer state in the file does not fit {type(optimizer).__name__}, which keeps "
            f"{', '.join(names) or 'none'}; load it into an optimizer like the one that it was saved from"
        )
    arrays.update(zip(names, state, strict=True))
    return {name: array.asnumpy() for name, array in arrays.items()}


def _is_array(value: Any) -> bool:
    return isinstance(value, mx.nd.NDArray)


def _slots(optimizer: Any, known: _Known) -> tuple[str, ...]:
    """Return the names of the rule's own state arrays, in MXNet's order."""
    return tuple(name for name, _ in make_rule(OptimizerSpec(*_rule(optimizer))).states(np.dtype(np.float32)))
