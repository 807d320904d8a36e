"""A fingerprint tells whether two workers hold the same bits, by a sample of them."""

import zlib
from collections.abc import Sequence

import torch

from elastic_ps.torch.arrays import bytes_of_each, is_number

_SAMPLED = 64
"""Elements of a tensor that a fingerprint looks at, at least."""


def fingerprint_of(tensors: Sequence[torch.Tensor]) -> int:
    """Return a number, of 32 bits, that differs where a sample of the tensors' bits does."""
    samples = [_sample(each) for each in tensors]
    elsewhere = iter(bytes_of_each([each for each in samples if isinstance(each, torch.Tensor)]))
    found = 0
    for sample in samples:
        found = zlib.crc32(sample if isinstance(sample, bytes) else next(elsewhere), found)
    return found


def _sample(tensor: torch.Tensor) -> bytes | torch.Tensor:
    """Return the bits of some elements; as a tensor where numpy, which is three times as fast, cannot read them."""
    step = max(1, tensor.numel() // _SAMPLED)
    if tensor.device.type == "cpu" and is_number(tensor):
        return tensor.detach().numpy().reshape(-1)[::step].tobytes()
    # A copy, as the flat one is one of the whole tensor where that is not contiguous.
    return tensor.detach().reshape(-1)[::step].contiguous()
