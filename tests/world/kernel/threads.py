"""What production takes from `threading`, `queue` and `time`, over the world's scheduler."""

import queue as real_queue
import threading as real_threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from tests.world.kernel.locks import Condition, Event, Lock, RLock, here, leave
from tests.world.kernel.scheduler import DEAD, Scheduler, Task

EPOCH = 1_800_000_000.0
"""Unix seconds at which every world begins."""


def _scheduler() -> Scheduler:
    return here.scheduler  # type: ignore[no-any-return]


class Thread:
    """See `threading.Thread`."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., Any] | None = None,
        name: str = "",
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool = False,
    ):
        self.name, self.daemon = name, daemon
        self._target, self._args, self._kwargs = target, args, dict(kwargs or {})
        self._ended = Event()
        self._began = False

    def start(self) -> None:
        scheduler = _scheduler()
        assert scheduler.current is not None
        self.begin(scheduler.current.process)
        scheduler.pause()

    def begin(self, process: Any) -> None:
        """Start it as a thread of a process."""
        self._began = True
        _scheduler().spawn(process, self._run, self)

    def _run(self) -> None:
        try:
            self.run()
        except SystemExit:
            pass
        finally:
            self._ended.set()

    def run(self) -> None:
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)

    def is_alive(self) -> bool:
        return self._began and not self._ended.is_set()

    def __repr__(self) -> str:
        return f"<thread {self.name}>"


class Timer(Thread):
    """See `threading.Timer`."""

    def __init__(
        self,
        interval: float,
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ):
        super().__init__(target=function, args=args, kwargs=kwargs, name="timer")
        self._interval = interval
        self._cancelled = False

    def start(self) -> None:
        scheduler = _scheduler()
        assert scheduler.current is not None
        process = scheduler.current.process
        scheduler.call_at(scheduler.now + self._interval, lambda: self._due(process))

    def _due(self, process: Any) -> None:
        if not self._cancelled and process.state != DEAD:
            self.begin(process)

    def run(self) -> None:
        if not self._cancelled:
            super().run()

    def cancel(self) -> None:
        self._cancelled = True


class Queue:
    """See `queue.Queue`, without a bound."""

    def __init__(self, maxsize: int = 0):
        self._items: deque[Any] = deque()
        self._waiting: deque[Task] = deque()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        self._items.append(item)
        while self._waiting:
            if here.scheduler.wake(self._waiting.popleft()):
                break

    put_nowait = put

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        scheduler = here.scheduler
        until = None if timeout is None else scheduler.now + timeout
        while not self._items:
            left = None if until is None else until - scheduler.now
            if not block or (left is not None and left <= 0):
                raise real_queue.Empty
            self._waiting.append(scheduler.current)
            if not scheduler.park(left):
                leave(self._waiting, scheduler.current)
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


def current_thread() -> Any:
    """See `threading.current_thread`."""
    task = _scheduler().current
    return task.thread if task is not None else None


def main_thread() -> Any:
    """See `threading.main_thread`: of the process whose task runs."""
    task = _scheduler().current
    return task.process.main if task is not None else None


def _now() -> float:
    return here.scheduler.now  # type: ignore[no-any-return]


def _unix() -> float:
    return EPOCH + here.scheduler.now  # type: ignore[no-any-return]


def _sleep(seconds: float) -> None:
    here.scheduler.park(seconds)


threading = SimpleNamespace(
    Lock=Lock,
    RLock=RLock,
    Condition=Condition,
    Event=Event,
    Thread=Thread,
    Timer=Timer,
    current_thread=current_thread,
    main_thread=main_thread,
    local=real_threading.local,
)
queue = SimpleNamespace(Queue=Queue, SimpleQueue=Queue, Empty=real_queue.Empty)
time = SimpleNamespace(monotonic=_now, perf_counter=_now, process_time=_now, time=_unix, sleep=_sleep)
