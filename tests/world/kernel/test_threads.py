"""Threads, locks and clocks of the world: they do what those of the standard library do."""

from collections.abc import Callable

import pytest

from tests.world.kernel.scheduler import Process, Scheduler
from tests.world.kernel.threads import Condition, Event, Lock, Queue, Thread, here, queue, time


@pytest.fixture
def scheduler():
    here.scheduler = Scheduler(7, switches=0.5)
    yield here.scheduler
    here.scheduler.end()
    here.scheduler = None


def run(scheduler: Scheduler, *bodies: Callable[[], None]) -> Process:
    process = Process("p", "test", 1)
    for body in bodies:
        Thread(target=body).begin(process)
    scheduler.run()
    return process


def test_time_goes_on_only_where_all_wait(scheduler):
    seen = []

    def sleeper(seconds):
        time.sleep(seconds)
        seen.append((time.monotonic(), seconds))

    run(scheduler, lambda: sleeper(3.0), lambda: sleeper(1.0), lambda: sleeper(2.0))
    assert seen == [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]


def test_time_goes_on_by_however_little_somebody_waits(scheduler):
    """Who waits for what a sum of floats leaves of a bound would else look again for ever."""
    seen = []

    def sleeper():
        time.sleep(64.0)
        time.sleep(7e-15)
        seen.append(time.monotonic() > 64.0)

    run(scheduler, sleeper)
    assert seen == [True]


def test_a_lock_is_held_by_one(scheduler):
    lock, inside = Lock(), []

    def body():
        for _ in range(20):
            with lock:
                inside.append(1)
                assert len(inside) == 1
                time.sleep(0.01)
                inside.pop()

    run(scheduler, body, body, body)
    assert scheduler.now == pytest.approx(0.6)


def test_a_condition_wakes_who_waits_and_times_out(scheduler):
    changed, ready, seen = Condition(), [], []

    def waits(timeout):
        with changed:
            seen.append((bool(changed.wait_for(lambda: ready, timeout)), time.monotonic()))

    def gives():
        time.sleep(2.0)
        with changed:
            ready.append(1)
            changed.notify_all()

    run(scheduler, lambda: waits(1.0), lambda: waits(None), gives)
    assert seen == [(False, 1.0), (True, 2.0)]


def test_who_waits_for_a_predicate_runs_when_it_holds(scheduler):
    """Also where the notice came before the change, under one hold of the lock; else it does not run at all."""
    changed, ready, looked, seen = Condition(), [], [], []

    def waits():
        with changed:
            changed.wait_for(lambda: looked.append(time.monotonic()) or ready)
            seen.append(time.monotonic())

    def gives():
        for _ in range(3):
            time.sleep(1.0)
            with changed:
                changed.notify_all()
                if time.monotonic() == 3.0:
                    ready.append(1)

    run(scheduler, waits, gives)
    assert seen == [3.0]
    assert looked == [0.0, 1.0, 2.0, 3.0, 3.0]


def test_a_queue_gives_in_order_or_says_that_it_is_empty(scheduler):
    items, seen = Queue(), []

    def takes():
        seen.append(items.get())
        seen.append(items.get(timeout=5.0))
        with pytest.raises(queue.Empty):
            items.get(timeout=1.0)
        seen.append(time.monotonic())

    def puts():
        items.put(1)
        time.sleep(1.0)
        items.put(2)

    run(scheduler, takes, puts)
    assert seen == [1, 2, 2.0]


def test_a_frozen_process_does_nothing_until_it_is_thawed(scheduler):
    seen, process = [], Process("p", "test", 1)
    Thread(target=lambda: (time.sleep(1.0), seen.append(time.monotonic()))).begin(process)
    scheduler.call_at(0.5, lambda: scheduler.freeze(process))
    scheduler.call_at(4.0, lambda: scheduler.thaw(process))
    scheduler.run()
    assert seen == [4.0]


def test_one_seed_is_one_order(scheduler):
    def order(seed):
        here.scheduler = Scheduler(seed, switches=0.5)
        lock, seen = Lock(), []

        def body(name):
            for _ in range(5):
                with lock:
                    seen.append(name)

        run(here.scheduler, *(lambda name=name: body(name) for name in range(4)))
        return seen

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_an_event_that_is_set_stays_so(scheduler):
    event, seen = Event(), []
    run(scheduler, lambda: seen.append(event.wait(1.0)), lambda: (time.sleep(0.5), event.set()))
    assert seen == [True]
    assert event.is_set()
