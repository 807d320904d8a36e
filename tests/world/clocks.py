"""What production takes from `time`: each process has clocks of its own, which may jump."""

from types import SimpleNamespace

from tests.world import threads
from tests.world.threads import here


def _ahead() -> tuple[float, float]:
    task = here.scheduler.current
    return task.process.ahead if task is not None else (0.0, 0.0)


def _monotonic() -> float:
    return here.scheduler.now + _ahead()[0]  # type: ignore[no-any-return]


def _unix() -> float:
    return threads.time.time() + _ahead()[1]  # type: ignore[no-any-return]


time = SimpleNamespace(
    monotonic=_monotonic, perf_counter=_monotonic, process_time=_monotonic, time=_unix, sleep=threads.time.sleep
)
