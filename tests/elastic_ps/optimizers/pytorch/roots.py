"""Square roots as processors have them, instead of PyTorch's."""

from typing import Any

import numpy as np
import pytest
import torch


def use_exact_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's square root of float32 is a last place off for one number in six, by other ones on other processors."""

    def root(tensor: Any) -> Any:
        return torch.from_numpy(np.sqrt(tensor.numpy()))

    monkeypatch.setattr(torch.Tensor, "sqrt", root)
    monkeypatch.setattr(torch.Tensor, "sqrt_", lambda tensor: tensor.copy_(root(tensor)))
