"""This module knows what PyTorch's `GradScaler` tells an optimizer whose `step` it calls in every case."""

from collections.abc import Iterable

import torch


def is_scaled(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether a GradScaler calls the step that is under way."""
    return hasattr(optimizer, "found_inf")


def unscale(optimizer: torch.optim.Optimizer, gradients: Iterable[torch.Tensor]) -> None:
    """Divide gradients by the scale that a GradScaler has told, where it has not done so.

    Scales of workers differ: one that joins begins with the first. What has overflowed stays infinite.

    Args:
        optimizer: whose step the GradScaler calls.
        gradients: this worker's, changed in place.
    """
    scale = getattr(optimizer, "grad_scale", None)
    if scale is not None:
        factor = scale.double().reciprocal().float()
        for gradient in gradients:
            gradient.mul_(factor.to(gradient.device))


def forget(optimizer: torch.optim.Optimizer) -> None:
    """Take away what a GradScaler has told, as it does behind a step that returns: it multiplies by what it finds."""
    for name in ("found_inf", "grad_scale"):
        vars(optimizer).pop(name, None)
