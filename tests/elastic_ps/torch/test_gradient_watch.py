"""A `GradientWatch` tells what the script has changed behind its backward pass from what it has set itself."""

import pytest

torch = pytest.importorskip("torch")

from elastic_ps.core.errors import ConfigurationError  # noqa: E402
from elastic_ps.torch.gradient_watch import GradientWatch  # noqa: E402

pytestmark = pytest.mark.timeout(60)


def watched() -> tuple[torch.Tensor, GradientWatch]:
    """A parameter that has a gradient, and who watches it."""
    parameter = torch.nn.Parameter(torch.ones(3))
    watch = GradientWatch({parameter: "s:weight"}, None)
    parameter.sum().backward()
    return parameter, watch


def test_a_gradient_that_is_changed_where_it_lies() -> None:
    parameter, watch = watched()
    parameter.grad.mul_(0.5)
    with pytest.raises(ConfigurationError, match=r"gradient of weight was changed after loss.backward\(\)"):
        watch.check(scaled=False)


def test_a_gradient_of_the_scripts_own_where_another_has_been() -> None:
    """Python gives it the number, `id`, of the one that is gone."""
    parameter, watch = watched()
    before = id(parameter.grad)
    parameter.grad = None
    own = next(found for found in [torch.ones(3) for _ in range(1000)] if id(found) == before)
    parameter.grad = own.mul_(0.5)
    watch.check(scaled=False)
