"""What production takes from `time`: each process has clocks of its own, which may jump."""

import time as real_time
from types import SimpleNamespace

from tests.world.kernel import threads
from tests.world.kernel.threads import here


def _monotonic() -> float:
    scheduler = here.scheduler
    task = scheduler.current
    return scheduler.now + task.process.ahead[0] if task is not None else scheduler.now  # type: ignore[no-any-return]


def _unix() -> float:
    task = here.scheduler.current
    return threads.time.time() + (task.process.ahead[1] if task is not None else 0.0)  # type: ignore[no-any-return]


time = SimpleNamespace(
    monotonic=_monotonic,
    perf_counter=_monotonic,
    process_time=_monotonic,
    time=_unix,
    sleep=threads.time.sleep,
    CLOCK_BOOTTIME=real_time.CLOCK_BOOTTIME,
    clock_gettime=lambda _clock: _monotonic(),  # no machine sleeps
)
