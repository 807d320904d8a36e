"""What an optimizer is to a server: a rule over flat arrays, the same bits however they are cut."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.optimizer import Hyper
from elastic_ps.server.optimizers.numbers import mxnet_float

Array = NDArray[Any]
DType = np.dtype[Any]
Number = Callable[[float], Any]
"""A constant as the kernel sees it: rounded to float32 as MXNet's operators parse it, then to the array's dtype."""
Kernel = Callable[..., None]
"""kernel(value, gradient, scratch, other, *states): updates `value` and `states` in place, may use up the rest."""

CHUNK = 16384
"""Elements that a rule works on at a time: values, gradient, states and scratch stay in a core's own cache."""

MASTER = "master"
"""State array of a float16 tensor under multi_precision: the float32 values that the rule works on."""


class Rule(ABC):
    """The contract of built-in and users' optimizers.

    A user's rule is a subclass in a module that the server is started with (`--optimizer-module`), named
    "module:Class" in `OptimizerSpec.name` and constructed with `OptimizerSpec.args` as keyword arguments (raise
    `ConfigurationError` for what cannot be). It must be deterministic and, where `divisible`, elementwise: blocks of
    one tensor live on several servers, and a follower applies the same updates in other runs than its primary and
    must hold the same bytes. `elastic_ps.server.optimizers.accumulate` is an example.

    Rules hold no state of their own and are called from several threads at once, each on other arrays.
    """

    divisible: ClassVar[bool] = True
    """False where an update needs the whole tensor: `update` then gets exactly one tensor."""

    @abstractmethod
    def states(self, dtype: DType) -> tuple[tuple[str, DType], ...]:
        """Names and dtypes of the state arrays of a tensor, each with one element for each of the tensor's.

        Raises:
            ConfigurationError: tensors of this dtype cannot be optimized.
        """

    def init(self, states: dict[str, Array], value: Array) -> None:  # noqa: B027 (most rules start from zeros)
        """Set the states, which come zeroed, for first values. Called again where a script sets the values anew."""

    @abstractmethod
    def update(self, value: Array, gradient: Array, states: dict[str, Array], count: int, hyper: Hyper) -> None:
        """Apply one update in place.

        Args:
            value: flat values of a run of blocks. Padding between blocks is zero in all arrays and must stay so.
            gradient: aggregated, before rescaling and clipping; must not be written to.
            states: by the names of `states`, flat like `value`.
            count: number of this update for these blocks, from 1.
            hyper: with lr and wd multiplied by the key's own factors.
        """


def scratch(index: int, length: int, dtype: DType) -> Array:
    """The calling thread's work array number `index`, of up to `CHUNK` elements; its content is undefined."""
    arrays: dict[tuple[int, DType], Array] = _work.__dict__.setdefault("arrays", {})
    array = arrays.get((index, dtype))
    if array is None:
        array = arrays[index, dtype] = np.empty(CHUNK, dtype)
    return array[:length]


_work = threading.local()


@dataclass(frozen=True)
class Elementwise(Rule):
    """A rule whose every element stands alone; subclasses give `_slots` and `_kernel`.

    Args:
        begin_num_update: updates that count as done before the first.
        multi_precision: work on float32 copies of float16 tensors.
    """

    begin_num_update: int = 0
    multi_precision: bool = False

    def _slots(self) -> tuple[str, ...]:
        """Names of the rule's own state arrays."""
        return ()

    @abstractmethod
    def _kernel(self, count: int, hyper: Hyper, number: Number) -> Kernel:
        """The update number `count`, with its constants folded in."""

    def states(self, dtype: DType) -> tuple[tuple[str, DType], ...]:
        """The rule's own, of the tensor's dtype, or all in float32 with a master copy."""
        if dtype.kind != "f" or dtype.itemsize > 8:
            raise ConfigurationError(
                f"{type(self).__name__} cannot update a {dtype} tensor: "
                "use float16, float32 or float64, or do not push its key"
            )
        if self.multi_precision and dtype == np.float16:
            single = np.dtype(np.float32)
            return (*((name, single) for name in self._slots()), (MASTER, single))
        return tuple((name, dtype) for name in self._slots())

    def init(self, states: dict[str, Array], value: Array) -> None:
        """Copy the values to the master copy, where there is one."""
        if MASTER in states:
            states[MASTER][...] = value

    def update(self, value: Array, gradient: Array, states: dict[str, Array], count: int, hyper: Hyper) -> None:
        """Run the kernel over the arrays, `CHUNK` by `CHUNK`."""
        target = states.get(MASTER, value)
        dtype = target.dtype
        kernel = self._kernel(self.begin_num_update + count, hyper, lambda x: dtype.type(mxnet_float(x)))
        arrays = [states[name] for name in self._slots()]
        with np.errstate(all="ignore"):  # overflow to inf is the framework's result too
            for low in range(0, len(target), CHUNK):
                part = slice(low, min(low + CHUNK, len(target)))
                length = part.stop - low
                work = scratch(0, length, dtype), scratch(1, length, dtype)
                grad = gradient[part] if gradient.dtype == dtype else gradient[part].astype(dtype)
                kernel(target[part], grad, *work, *(array[part] for array in arrays))
                if target is not value:
                    value[part] = target[part]


def limit(hyper: Hyper, number: Number) -> Any:
    """The bound on gradients, or None: MXNet's operators read None, 0 and below as none."""
    return number(hyper.clip_gradient) if hyper.clip_gradient and hyper.clip_gradient > 0 else None


def clip(array: Array, bound: Any) -> None:
    """Bound the elements in place; `bound` None: not at all."""
    if bound is not None:
        np.minimum(array, bound, out=array)
        np.maximum(array, -bound, out=array)
