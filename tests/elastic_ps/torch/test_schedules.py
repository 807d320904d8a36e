"""Schedulers are where the job is, whatever kind of number they change."""

import pytest

torch = pytest.importorskip("torch")

from elastic_ps.core.data_order import Place  # noqa: E402
from elastic_ps.torch.schedules import Schedules  # noqa: E402


@pytest.mark.parametrize("lr", [0.5, torch.tensor(0.5)])
def test_a_step_that_is_made_again_has_its_own_rate_also_where_that_is_a_tensor(lr):
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=lr, foreach=False)
    scheduler, schedules = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5), Schedules((optimizer,))
    optimizer.step()
    schedules.rehearse()
    scheduler.step()
    rates = []
    for number in (0, 0, 1, 1, 3):  # in step 2 this worker has no samples
        schedules.begin_step(Place(0, number), 10)
        rates.append(float(optimizer.param_groups[0]["lr"]))
        scheduler.step()
    assert rates == [0.5, 0.5, 0.25, 0.25, 0.0625]
    assert (optimizer.param_groups[0]["lr"] is lr) == isinstance(lr, torch.Tensor)
