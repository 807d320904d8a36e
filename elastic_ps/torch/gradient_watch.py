"""A `GradientWatch` finds gradients that the script has changed after its backward pass."""

import weakref
from collections.abc import Callable, Mapping

import torch

from elastic_ps.core.errors import ConfigurationError


class GradientWatch:
    """A `GradientWatch` remembers which version of each gradient the backward pass has left.

    A worker has the gradient of its own samples, so what clips that by its size (`clip_grad_norm_`) would do something
    else than in one process, and nobody would see it. What PyTorch does not count (`parameter.grad.data.clamp_`) is
    found in the first step alone, by norms; but `GradScaler.unscale_`, which it does not count either, is not.

    Args:
        keys: of the parameters, as in `Tensor.key`.
        made: called with each parameter when a backward pass has made its gradient; None: nobody asks.
    """

    def __init__(self, keys: Mapping[torch.Tensor, str], made: Callable[[torch.Tensor], None] | None):
        self._keys = keys
        self._made = made
        self._left: dict[torch.Tensor, tuple[weakref.ref[torch.Tensor], int]] = {}  # what each had, and its version
        self._norms: dict[torch.Tensor, str] | None = {}  # None: the first step has been made
        self._hooked: set[torch.Tensor] = set()
        self._hook()

    def _hook(self) -> None:
        """Watch the parameters that have gradients, from now on: one that is frozen may thaw."""
        for parameter in self._keys:
            if parameter.requires_grad and parameter not in self._hooked:
                parameter.register_post_accumulate_grad_hook(self._note)  # type: ignore[no-untyped-call]
                self._hooked.add(parameter)

    def _note(self, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            self._left[parameter] = weakref.ref(parameter.grad), parameter.grad._version
            if self._norms is not None:
                self._norms[parameter] = _norm(parameter.grad)
        if self._made is not None:
            self._made(parameter)

    def check(self, scaled: bool) -> None:
        """Refuse gradients that were changed in place; what the script has set itself is left as it is.

        Args:
            scaled: a GradScaler may have changed them.

        Raises:
            ConfigurationError: names the first.
        """
        self._hook()
        norms, self._norms = self._norms or {}, None
        for parameter, key in self._keys.items():
            left = self._left.get(parameter)
            if left is None or parameter.grad is None:
                continue
            tensor, version = left
            is_changed = parameter.grad._version != version or (
                not scaled and parameter in norms and norms[parameter] != _norm(parameter.grad)
            )
            if tensor() is parameter.grad and is_changed and _has_values(parameter.grad):
                raise ConfigurationError(
                    f"the gradient of {key[2:]} was changed after loss.backward(). A worker has the gradient of its "
                    "own samples only, so clip_grad_norm_ and clip_grad_value_ do something else there than in one "
                    "process: instead of clip_grad_norm_ make elastic.Optimizer(..., max_norm=1.0), which clips by "
                    "the norm over all workers and servers; scale the loss, not the gradient"
                )


def _has_values(gradient: torch.Tensor) -> bool:
    """Return whether a gradient is more than zeros, to which `zero_grad(set_to_none=False)` sets it."""
    return gradient.layout is not torch.strided or bool(gradient.any())


def _norm(gradient: torch.Tensor) -> str:
    """Return a gradient's norm, as text that equals itself where it is no number."""
    if gradient.layout is not torch.strided:
        return ""
    found: float = torch.linalg.vector_norm(gradient.detach(), dtype=torch.float64).item()
    return found.hex()
