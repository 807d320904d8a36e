"""What production takes from `threading`, `queue` and `time`, over the world's scheduler."""

import queue as real_queue
import threading as real_threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from tests.world.scheduler import DEAD, Scheduler, Task

EPOCH = 1_800_000_000.0
"""Unix seconds at which every world begins."""

here: SimpleNamespace = SimpleNamespace(scheduler=None)
"""Whose scheduler the present world has."""


def _scheduler() -> Scheduler:
    return here.scheduler  # type: ignore[no-any-return]


def _leave(waiting: Any, task: Task) -> None:
    """Wait no more, where nobody has taken this task off the list just now."""
    if task in waiting:
        waiting.remove(task)


class Lock:
    """See `threading.Lock`."""

    __slots__ = ("_owner", "_waiting")

    def __init__(self) -> None:
        self._owner: Task | None = None
        self._waiting: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = here.scheduler
        scheduler.pause()
        while self._owner is not None:
            if not blocking or scheduler.over:
                return False
            self._waiting.append(scheduler.current)
            if not scheduler.park(timeout if timeout >= 0 else None):
                _leave(self._waiting, scheduler.current)
                return False
        self._owner = scheduler.current
        return True

    def release(self) -> None:
        self._owner = None
        while self._waiting:
            scheduler = here.scheduler
            if scheduler.wake(self._waiting.pop(int(scheduler.random.random() * len(self._waiting)))):
                break

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class RLock(Lock):
    """See `threading.RLock`."""

    __slots__ = ("_times",)

    def __init__(self) -> None:
        super().__init__()
        self._times = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._owner is not None and self._owner is here.scheduler.current:
            self._times += 1
            return True
        if super().acquire(blocking, timeout):
            self._times = 1
            return True
        return False

    def release(self) -> None:
        self._times -= 1
        if self._times <= 0:
            super().release()

    def let_go(self) -> int:
        """Release it whole; return how often it was taken."""
        times, self._times = self._times, 0
        super().release()
        return times

    def take_again(self, times: int) -> None:
        """Take it as often as `let_go` has said."""
        super().acquire()
        self._times = times


class Condition:
    """See `threading.Condition`."""

    __slots__ = ("_lock", "_waiting", "acquire", "release")

    def __init__(self, lock: Any = None):
        self._lock = lock if lock is not None else RLock()
        self._waiting: deque[Task] = deque()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()  # type: ignore[no-any-return]

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        scheduler, lock = here.scheduler, self._lock
        times = lock.let_go() if isinstance(lock, RLock) else lock.release()
        self._waiting.append(scheduler.current)
        try:
            woken = scheduler.park(timeout)
            if not woken:
                _leave(self._waiting, scheduler.current)
        finally:
            if isinstance(lock, RLock):
                lock.take_again(times)
            else:
                lock.acquire()
        return woken  # type: ignore[no-any-return]

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        until = None if timeout is None else here.scheduler.now + timeout
        while not (result := predicate()):
            left = None if until is None else until - here.scheduler.now
            if left is not None and left <= 0:
                return predicate()
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        while n and self._waiting:
            n -= here.scheduler.wake(self._waiting.popleft())

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class Event:
    """See `threading.Event`."""

    __slots__ = ("_set", "_waiting")

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Task] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            here.scheduler.wake(task)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        scheduler = here.scheduler
        if self._set:
            scheduler.pause()
            return True
        self._waiting.append(scheduler.current)
        if not scheduler.park(timeout):
            _leave(self._waiting, scheduler.current)
            return self._set
        return True


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
                _leave(self._waiting, scheduler.current)
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
