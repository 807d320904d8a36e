"""Schedulers are where the job is, whatever kind of number they change."""

import gc
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.optim.lr_scheduler import (  # noqa: E402
    ChainedScheduler,
    CosineAnnealingWarmRestarts,
    LambdaLR,
    LinearLR,
    LRScheduler,
    SequentialLR,
    StepLR,
)

from elastic_ps.core.data_order import Place  # noqa: E402
from elastic_ps.torch.schedules import Schedules  # noqa: E402
from tests.elastic_ps.torch.small_script import Around  # noqa: E402


def rehearse(schedules: Schedules, optimizer: Any, scheduler: Any, each_step: bool = True) -> None:
    """Make the rehearsal's batch, with the scheduler's call in it if it has one."""
    schedules.begin_rehearsal()
    optimizer.step()
    schedules.rehearse()
    if each_step:
        scheduler.step()
    schedules.end_batch()


def rehearse_with_the_scheduler_first(schedules: Schedules, optimizer: Any, scheduler: Any) -> None:
    """Make a rehearsal's batch that calls the scheduler before the optimizer, which has been called elsewhere."""
    optimizer.step()
    schedules.begin_rehearsal()
    scheduler.step()
    schedules.rehearse()
    schedules.end_batch()


@pytest.mark.parametrize("lr", [0.5, torch.tensor(0.5)])
def test_a_step_that_is_made_again_has_its_own_rate_also_where_that_is_a_tensor(lr):
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=lr, foreach=False)
    scheduler, schedules = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5), Schedules((optimizer,))
    rehearse(schedules, optimizer, scheduler)
    rates = []
    for number in (0, 0, 1, 1, 3):  # in step 2 this worker has no samples
        schedules.begin_batch(Place(0, number), 10)
        schedules.begin_step(Place(0, number), 10)
        rates.append(float(optimizer.param_groups[0]["lr"]))
        scheduler.step()
        schedules.end_batch(Place(0, number), 10)
    assert rates == [0.5, 0.5, 0.25, 0.25, 0.0625]
    assert (optimizer.param_groups[0]["lr"] is lr) == isinstance(lr, torch.Tensor)


class WarmUp(LRScheduler):
    """Hands over to another scheduler when it is over, which it has as an attribute of its own."""

    def __init__(self, optimizer: Any, steps: int, after: LRScheduler):
        self.steps, self.after = steps, after
        super().__init__(optimizer)

    def get_lr(self) -> list[float]:
        return [base * (self.last_epoch + 1) / self.steps for base in self.base_lrs]

    def step(self, epoch: int | None = None) -> None:
        if getattr(self, "last_epoch", -1) + 1 < self.steps:
            super().step()
        else:
            self.after.step()


class Halving:
    """A schedule that refers to what cannot be copied."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, number: int) -> float:
        return 0.5**number


@pytest.mark.parametrize(
    "make", [lambda own: WarmUp(own, 2, StepLR(own, 1, 0.5)), lambda own: LambdaLR(own, Halving())]
)
def test_a_schedule_may_refer_to_others_and_to_what_cannot_be_copied(make: Any) -> None:
    found = []
    for is_elastic in (False, True):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        scheduler, schedules, rates = make(optimizer), Schedules((optimizer,)), []
        if is_elastic:
            rehearse(schedules, optimizer, scheduler)
        optimizer.step()
        for number in (0, 0, 1, 2, 3, 3) if is_elastic else range(4):
            if is_elastic:
                schedules.begin_batch(Place(0, number), 10)
                schedules.begin_step(Place(0, number), 10)
            rates.append(optimizer.param_groups[0]["lr"])
            scheduler.step()
            schedules.end_batch(Place(0, number), 10)
        found.append(rates)
    plain, elastic = found
    assert elastic == [plain[0], *plain, plain[-1]]
    assert len(set(plain)) > 2


def test_a_joiner_whose_first_epoch_ends_before_it_has_a_step_calls_its_schedule_by_epochs() -> None:
    """It has no samples in its first step, which may be the epoch's last."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, schedules = StepLR(optimizer, 1, 0.5), Schedules((optimizer,))
    rehearse(schedules, optimizer, scheduler, each_step=False)
    scheduler.step()  # behind its first loop
    schedules.begin_batch(Place(4, 0), 10)
    assert optimizer.param_groups[0]["lr"] == 0.5**4


CALLED_AHEAD = [
    (lambda own: StepLR(own, 1, 0.5), False),
    (lambda own: StepLR(own, 1, 0.5), True),
    (lambda own: CosineAnnealingWarmRestarts(own, 20), False),
    (lambda own: CosineAnnealingWarmRestarts(own, 20), True),
    (lambda own: SequentialLR(own, [LinearLR(own), StepLR(own, 1, 0.5)], [3]), False),
    (lambda own: ChainedScheduler([LinearLR(own), StepLR(own, 2)]), False),
]
"""Schedulers, and whether the script tells them the epoch, where it calls them before the epoch's batches."""


@pytest.mark.filterwarnings("ignore::UserWarning")  # of the order, and of epochs that are told
@pytest.mark.parametrize(("make", "is_told"), CALLED_AHEAD)
@pytest.mark.parametrize("bodies", [1, 2])  # the first may have the rehearsal alone
def test_a_schedule_that_is_called_before_an_epochs_batches(make: Any, is_told: bool, bodies: int, caplog: Any) -> None:
    """It lacked a call, or had as many more as there were epochs, and was said to come from a snapshot."""
    alone = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    expected = make(alone)
    for epoch in range(6):
        expected.step(*[epoch] * is_told)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, schedules = make(optimizer), Schedules((optimizer,))
    schedules.begin_loop()
    scheduler.step(*[6 - bodies] * is_told)
    rehearse(schedules, optimizer, scheduler, each_step=False)
    if bodies == 2:
        scheduler.step(*[5] * is_told)
    schedules.begin_batch(Place(5, 0), 10)
    assert optimizer.param_groups[0]["lr"] == alone.param_groups[0]["lr"]
    assert not caplog.text


def test_a_schedule_that_is_called_only_behind_steps_that_count_is_told_of(caplog: Any) -> None:
    """The rehearsal's gradients overflowed, as those of a first scale do; and it began anew after a restore."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, schedules = StepLR(optimizer, 1, 0.5), Schedules((optimizer,))
    fractions = CosineAnnealingWarmRestarts(optimizer, 4)  # which is told its place in each batch
    rehearse(schedules, optimizer, scheduler, each_step=False)
    for number in range(5):
        schedules.begin_batch(Place(0, number), 10)
        schedules.begin_step(Place(0, number), 10)
        fractions.step(number / 2)
        if number > 2:
            scheduler.step()
        schedules.end_batch(Place(0, number), 10)
        assert len(caplog.messages) == (number > 2)
    assert "StepLR.step() was called in a batch, and not in the rehearsal's" in caplog.text


def test_a_schedule_of_epochs_is_not_told_of(caplog: Any) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, schedules = StepLR(optimizer, 1, 0.5), Schedules((optimizer,))
    rehearse(schedules, optimizer, scheduler, each_step=False)
    for number in range(4):
        schedules.begin_batch(Place(number // 2, number % 2), 2)
        schedules.begin_step(Place(number // 2, number % 2), 2)
        schedules.end_batch(Place(number // 2, number % 2), 2)
        if number % 2:
            scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.25
    assert not caplog.text


def halving(own: Any, last_epoch: int = -1) -> LRScheduler:
    return StepLR(own, 1, 0.5, last_epoch=last_epoch)


def chain(own: Any, last_epoch: int = -1) -> LRScheduler:
    return ChainedScheduler([ChainedScheduler([halving(own, last_epoch)])])


def sequence(own: Any, last_epoch: int = -1) -> LRScheduler:
    return SequentialLR(own, [halving(own, last_epoch)], [], last_epoch)


def two(own: Any) -> LRScheduler:
    return SequentialLR(own, [halving(own), StepLR(own, 1, 0.25)], [2])


def called(make: Any, count: int) -> tuple[Any, Any]:
    """A new optimizer and its scheduler, which has been called so often."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer)
    for _ in range(count):
        optimizer.step()
        scheduler.step()
    return optimizer, scheduler


@pytest.mark.parametrize("make", [halving, chain, sequence, two])
@pytest.mark.parametrize(
    ("had", "made", "words"),
    [(3, 5, "the rest is made up for"), (6, 5, "it is left as it is"), (0, 5, ""), (3, 0, "is made with last_epoch=")],
)
def test_a_schedule_that_the_script_has_loaded_is_not_advanced_twice(
    had: int, made: int, words: str, make: Any, caplog: Any
) -> None:
    """As of the snapshot that scripts of DDP load where there is one."""
    (snapshot, saved), (optimizer, scheduler) = called(make, had), called(make, 0)
    optimizer.load_state_dict(snapshot.state_dict())
    scheduler.load_state_dict(saved.state_dict())
    schedules = Schedules((optimizer,))
    rehearse(schedules, optimizer, scheduler, each_step=False)
    schedules.begin_batch(Place(made, 0), 10)
    assert optimizer.param_groups[0]["lr"] == called(make, max(had, made))[0].param_groups[0]["lr"]
    assert words in caplog.text
    assert bool(words) == bool(caplog.text)


@pytest.mark.parametrize("make", [halving, chain, sequence])
def test_a_schedule_that_begins_behind_an_earlier_run_counts_from_there(make: Any, caplog: Any) -> None:
    optimizer = torch.optim.SGD([{"params": [torch.nn.Parameter(torch.zeros(1))], "initial_lr": 1.0}], lr=0.5**3)
    scheduler, schedules = make(optimizer, last_epoch=2), Schedules((optimizer,))
    before = optimizer.param_groups[0]["lr"]
    rehearse(schedules, optimizer, scheduler, each_step=False)
    schedules.begin_batch(Place(5, 0), 10)
    assert optimizer.param_groups[0]["lr"] == before * 0.5**5
    assert not caplog.text


def test_a_schedule_may_be_of_what_wraps_the_optimizer_once_more() -> None:
    """It was not found, so that a worker which joined began it anew."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, schedules = halving(Around(optimizer)), Schedules((optimizer,))
    rehearse(schedules, optimizer, scheduler, each_step=False)
    schedules.begin_batch(Place(3, 0), 10)
    assert optimizer.param_groups[0]["lr"] == 0.5**3


def test_an_optimizer_that_makes_few_steps_has_a_schedule_of_its_own_calls() -> None:
    """As that of a generator does, which is trained in every third batch; with its schedule it is called there."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, schedules, rates = StepLR(optimizer, 1, 0.5), Schedules((optimizer,)), []
    rehearse(schedules, optimizer, scheduler)
    for number in (0, 1, 2, 3, 4, 5, 5, 6, 8, 9):  # step 5 is made again, and in step 7 this worker has no samples
        schedules.begin_batch(Place(number // 4, number % 4), 4)
        if number % 3 == 0:
            schedules.begin_step(Place(number // 4, number % 4), 4)
            rates.append(optimizer.param_groups[0]["lr"])
            scheduler.step()
        schedules.end_batch(Place(number // 4, number % 4), 4)
    assert rates == [1, 0.5, 0.25, 0.125]


def test_a_schedule_may_be_called_before_the_optimizer() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, schedules, rates = StepLR(optimizer, 1, 0.5), Schedules((optimizer,)), []
    rehearse_with_the_scheduler_first(schedules, optimizer, scheduler)
    for number in range(3):
        schedules.begin_batch(Place(0, number), 10)
        scheduler.step()
        schedules.begin_step(Place(0, number), 10)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == [0.5, 0.25, 0.125]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_batch_that_is_left_takes_its_calls_back(is_late: bool) -> None:
    """Step 3 is left before or behind its first call of the optimizer, which is refused then."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, schedules, rates = StepLR(optimizer, 1, 0.5), Schedules((optimizer,)), []
    rehearse_with_the_scheduler_first(schedules, optimizer, scheduler)
    for number, is_left in ((0, False), (1, False), (2, False), (3, True), (3, False), (4, False)):
        schedules.begin_batch(Place(0, number), 10)
        scheduler.step()
        if is_late or not is_left:
            schedules.begin_step(Place(0, number), 10)
            rates.append(optimizer.param_groups[0]["lr"])
        schedules.end_batch(Place(0, number), 10, is_left)
    assert rates == [0.5, 0.25, 0.125, *([0.0625] if is_late else []), 0.0625, 0.03125]


def test_a_script_may_freeze_what_it_has_made() -> None:
    """`gc.freeze` keeps objects out of collections, and out of `gc.get_objects`."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, schedules = StepLR(optimizer, 1, gamma=0.5), Schedules((optimizer,))
    gc.freeze()
    try:
        rehearse(schedules, optimizer, scheduler)
        schedules.begin_batch(Place(0, 3), 10)
        assert scheduler.last_epoch == 3
        assert gc.get_freeze_count(), "what the script wanted"
    finally:
        gc.unfreeze()


def test_the_first_batch_that_is_left_takes_its_calls_back() -> None:
    """A joiner's, in step 3, before it calls the optimizer."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, schedules = StepLR(optimizer, 1, 0.5), Schedules((optimizer,))
    rehearse_with_the_scheduler_first(schedules, optimizer, scheduler)
    for is_left in (True, False):
        schedules.begin_batch(Place(0, 3), 10)
        scheduler.step()
        assert optimizer.param_groups[0]["lr"] == 0.5**4
        schedules.end_batch(Place(0, 3), 10, is_left)


@pytest.mark.parametrize("scheduled", [False, True])
def test_numbers_that_the_rehearsals_body_sets_are_taken_back(scheduled: bool) -> None:
    """It runs as the job's first step: a joiner behind a warm-up had the warm-up's first rate for good."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0, weight_decay=0.5)
    group = optimizer.param_groups[0]
    scheduler, schedules = StepLR(optimizer, 1, 0.5) if scheduled else None, Schedules((optimizer,))
    schedules.begin_rehearsal()
    group.update(lr=0.25, weight_decay=0.125)
    optimizer.step()
    schedules.rehearse()
    schedules.end_batch()
    assert (group["lr"], group["weight_decay"]) == (1.0, 0.5)
    group["weight_decay"] = 0.25  # before the first batch, and in its body
    schedules.begin_batch(Place(2, 0), 10)
    group["momentum"] = 0.75
    schedules.begin_step(Place(2, 0), 10)
    assert (group["lr"], group["weight_decay"], group["momentum"]) == (0.25 if scheduler else 1.0, 0.25, 0.75)


def test_a_batch_that_is_let_go_late_takes_nothing_back() -> None:
    """A script kept the iterator that it had left, and drops it in the next epoch."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedules = Schedules((optimizer,))
    schedules.begin_rehearsal()
    optimizer.step()
    schedules.rehearse()
    schedules.end_batch()
    schedules.begin_batch(Place(0, 0), 10)
    schedules.begin_step(Place(0, 0), 10)
    optimizer.param_groups[0]["lr"] = 0.25
    schedules.end_batch()
    assert optimizer.param_groups[0]["lr"] == 0.25
