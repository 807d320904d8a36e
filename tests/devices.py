"""The devices on which tests of PyTorch's adapter run: a CPU always, a GPU by `make test-gpu`."""

import pytest

ON_EACH = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
