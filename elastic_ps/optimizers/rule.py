"""A `Rule` is what an optimizer is to a server: a function of flat arrays, the same bits however they are cut."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from elastic_ps.core.errors import ConfigurationError, RuleFailed
from elastic_ps.core.optimizer import Hyper
from elastic_ps.core.segments import Array
from elastic_ps.native import library as native
from elastic_ps.native.threads import in_parallel
from elastic_ps.optimizers.constants import Constants
from elastic_ps.optimizers.gradient_sum import CHUNK, DType, GradientSum, Scratch

Kernel = Callable[..., None]
"""kernel(value, gradient, work, *states): updates `value` and `states` in place; `work` is three scratch arrays."""

MASTER = "master"
"""State array of a float16 tensor under multi_precision: the float32 values that the rule works on."""


class Rule(ABC):
    """A `Rule` is an optimizer, built in or a user's, as a server runs it.

    A user's rule is a subclass in a module that the server is started with (`--optimizer-module`), named
    "module:Class" in `OptimizerSpec.name` and constructed with `OptimizerSpec.args` as keyword arguments (raise
    `ConfigurationError` for what cannot be). It must be deterministic and, where `divisible`, elementwise: blocks of
    one tensor live on several servers, and a follower applies the same updates in other runs than its primary and
    must hold the same bytes. `examples/rules.py` has one.

    Rules hold nothing that changes and are called from several threads at once, each with other arrays.
    """

    divisible: ClassVar[bool] = True
    """False where an update needs the whole tensor: `update` then gets exactly one tensor."""

    name = ""
    """For people: of a built-in rule its class's name."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.name = cls.__name__

    @abstractmethod
    def states(self, dtype: DType) -> tuple[tuple[str, DType], ...]:
        """Return names and dtypes of the state arrays of a tensor, each with one element for each of the tensor's.

        Raises:
            ConfigurationError: tensors of this dtype cannot be optimized.
        """

    def init(self, states: dict[str, Array], value: Array) -> None:  # noqa: B027 (most rules start from zeros)
        """Set the states, which come zeroed, for first values. Called again where a script sets the values anew."""

    def skips_absent_rows(self, hyper: Hyper) -> bool:
        """Return whether a row-sparse gradient leaves the rows that it lacks as they are, in their states, too."""
        return False

    @abstractmethod
    def update(self, value: Array, gradient: Array, states: dict[str, Array], count: int, hyper: Hyper) -> None:
        """Apply one update in place.

        Args:
            value: shape (n,), values of a run of blocks. Padding between blocks is zero in all arrays and must stay so.
            gradient: shape (n,), the values' dtype: aggregated, before rescaling and clipping; must not be written to.
            states: by the names of `states`, each of shape (n,).
            count: number of this update for these blocks, from 1.
            hyper: with lr and wd multiplied by the key's own factors.
        """

    def apply(
        self, old: Array, new: Array, aggregate: GradientSum, states: dict[str, Array], count: int, hyper: Hyper
    ) -> None:
        """Update from the values `old` to `new`, by contributions that may be added on the way. For built-in rules.

        The two are the same memory or have nothing in common.

        Args:
            old: shape (n,), values of a run of blocks.
            new: memory for those after the update; the same as `old`, or apart from it.
            aggregate: the sum of the gradients.
            states: see `update`, and so are the others.
            count: number of this update.
            hyper: the optimizer's values.
        """
        if new is not old:
            new[...] = old
        self.update(new, aggregate.whole(), states, count, hyper)


_scratch = Scratch(4)


@dataclass(frozen=True)
class BuiltIn(Rule):
    """`BuiltIn` is what the built-in rules have in common; a subclass gives its state arrays' names.

    Args:
        begin_num_update: updates that count as done before the first.
        multi_precision: work on float32 copies of float16 tensors.
    """

    begin_num_update: int = 0
    multi_precision: bool = False

    divisor: ClassVar[str] = ""
    """Argument that keeps the rule from dividing 0 by 0 where there is no gradient, as in padding."""

    def __post_init__(self) -> None:
        if self.divisor and not getattr(self, self.divisor) > 0:
            raise ConfigurationError(
                f"{self.divisor} must be above 0, not {getattr(self, self.divisor)}: "
                "elements without a gradient would become nan"
            )

    def state_names(self) -> tuple[str, ...]:
        """Return the names of the rule's own state arrays, in the order in which frameworks save them."""
        return ()

    def states(self, dtype: DType) -> tuple[tuple[str, DType], ...]:
        """See `Rule.states`: the rule's own, of the tensor's dtype, or all in float32 with a master copy."""
        name = type(self).__name__
        if dtype not in (np.float16, np.float32, np.float64):
            raise ConfigurationError(
                f"{name} cannot update a {dtype} tensor: use float16, float32 or float64, or do not push its key"
            )
        double = self.multi_precision and dtype == np.float16
        work = np.dtype(np.float32) if double else dtype
        if self.divisor and not Constants(work).argument(getattr(self, self.divisor)) > 0:
            raise ConfigurationError(
                f"{name} cannot update a {dtype} tensor: {self.divisor} {getattr(self, self.divisor)} is 0 in {work}, "
                "and elements without a gradient would become nan; use multi_precision=True or a larger value"
            )
        return tuple((slot, work) for slot in (*self.state_names(), *([MASTER] if double else [])))

    def init(self, states: dict[str, Array], value: Array) -> None:
        """Copy the values to the master copy, where there is one."""
        if MASTER in states:
            states[MASTER][...] = value


@dataclass(frozen=True)
class Elementwise(BuiltIn):
    """An `Elementwise` rule treats every element alone; a subclass gives its kernel."""

    @abstractmethod
    def kernel(self, count: int, hyper: Hyper, constants: Constants) -> Kernel:
        """Return the update number `count`, with its constants folded in.

        Args:
            count: number of the update, from 1.
            hyper: the optimizer's values.
            constants: rounded for the dtype of the values.
        """

    def compiled(self, count: int, hyper: Hyper, constants: Constants) -> tuple[str, Sequence[Any]] | None:
        """Return name and constants of the same update in `native/kernels.inc`; None: it has none.

        Args:
            count: see `kernel`, and so are the others.
            hyper: the optimizer's values.
            constants: rounded for the dtype of the values.
        """
        return None

    def update(self, value: Array, gradient: Array, states: dict[str, Array], count: int, hyper: Hyper) -> None:
        """See `Rule.update`."""
        self.apply(value, value, GradientSum([gradient]), states, count, hyper)

    def apply(
        self, old: Array, new: Array, aggregate: GradientSum, states: dict[str, Array], count: int, hyper: Hyper
    ) -> None:
        """See `Rule.apply`: the compiled rule, or the kernel over the arrays, `CHUNK` by `CHUNK`."""
        target = states.get(MASTER, new)
        count += self.begin_num_update
        constants = Constants(target.dtype)
        arrays = [states[name] for name in self.state_names()]
        with np.errstate(all="ignore"), self._calculable(count, hyper):
            compiled = self.compiled(count, hyper, constants)
        if compiled is not None and target is new and native.has(compiled[0], new.dtype):
            name, numbers = compiled
            native.update(name, old, new, aggregate, arrays, numbers)
            return
        with self._calculable(count, hyper):
            kernel = self.kernel(count, hyper, constants)

        def work(low: int, high: int) -> None:
            with np.errstate(all="ignore"):  # overflow to inf is the framework's result too
                for part, grad, scratch in chunks(target, aggregate, low, high):
                    if target is new and new is not old:
                        new[part] = old[part]
                    kernel(target[part], grad, scratch, *(array[part] for array in arrays))
                    if target is not new:
                        new[part] = target[part]

        in_parallel(len(target), CHUNK, work)

    @contextmanager
    def _calculable(self, count: int, hyper: Hyper) -> Iterator[None]:
        """Name the numbers by which an update's constants cannot be worked out: 1 - beta1, say, is a divisor.

        Raises:
            RuleFailed: instead of an error of arithmetic.
        """
        try:
            yield
        except (ArithmeticError, ValueError, TypeError) as error:
            numbers = "".join(f", {name}={value}" for group in hyper.groups[:1] for name, value in group.items())
            raise RuleFailed(
                f"optimizer {self}{numbers}: update {count} cannot be calculated with these numbers ({error})"
            ) from error


def chunks(
    target: Array, aggregate: GradientSum, first: int = 0, last: int | None = None
) -> Iterator[tuple[slice, Array, Array]]:
    """Yield the parts of an update of the elements [first, last): where, gradient, and three scratch arrays.

    Args:
        target: the array that is updated.
        aggregate: the sum of the gradients; its parts come in the target's dtype.
        first: element.
        last: behind the last element; None: to the end.
    """
    last = len(target) if last is None else last
    for low in range(first, last, CHUNK):
        part = slice(low, min(low + CHUNK, last))
        rows = _scratch.take(part.stop - low, target.dtype)
        grad = aggregate.part(part.start, part.stop)
        if grad.dtype != target.dtype:
            rows[3] = grad
            grad = rows[3]
        yield part, grad, rows[:3]


def clip(array: Array, bound: Any) -> None:
    """Bound the elements in place; `bound` None: not at all."""
    if bound is not None:
        np.minimum(array, bound, out=array)
        np.maximum(array, -bound, out=array)
