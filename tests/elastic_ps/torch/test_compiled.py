"""A compiled model trains as the plain one, and its tensors have the plain one's names."""

import pytest

torch = pytest.importorskip("torch")

from tests.elastic_ps.torch.beside_plain import both, linear, moved  # noqa: E402

pytestmark = pytest.mark.slow


def compiled() -> torch.nn.Module:
    return torch.compile(linear(), backend="aot_eager")


def test_a_compiled_model() -> None:
    expected, model, servers = both(make=compiled)
    assert set(servers.exchanges[0]) == {"s:0.weight", "s:0.bias"}
    for name, values in expected.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], values)
    moved(model, compiled)
