"""Square roots as processors have them, instead of PyTorch's."""

from typing import Any

import numpy as np
import pytest
import torch


def use_exact_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's square root of float32 may be a last place off; where AVX-512 is, for one number in six."""

    def root(tensor: Any) -> Any:
        return torch.from_numpy(np.sqrt(tensor.numpy()))

    monkeypatch.setattr(torch.Tensor, "sqrt", root)
    monkeypatch.setattr(torch.Tensor, "sqrt_", lambda tensor: tensor.copy_(root(tensor)))
