"""Locks and what is built on them, over the world's scheduler: they do what those of `threading` do."""

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tests.world.scheduler import Task

here: SimpleNamespace = SimpleNamespace(scheduler=None)
"""Whose scheduler the present world has."""


def leave(waiting: Any, who: Any) -> None:
    """Wait no more, where nobody has taken `who` off the list just now."""
    if who in waiting:
        waiting.remove(who)


class Lock:
    """See `threading.Lock`."""

    __slots__ = ("_owner", "_told", "_waiting")

    def __init__(self) -> None:
        self._owner: Task | None = None
        self._waiting: list[Task] = []
        self._told: list[tuple[Condition, _Waiter]] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = here.scheduler
        scheduler.pause()
        while self._owner is not None:
            if not blocking or scheduler.over:
                return False
            self._waiting.append(scheduler.current)
            if not scheduler.park(timeout if timeout >= 0 else None):
                leave(self._waiting, scheduler.current)
                return False
        self._owner = scheduler.current
        return True

    def release(self) -> None:
        if self._told:
            self._judge()
        self._owner = None
        while self._waiting:
            scheduler = here.scheduler
            if scheduler.wake(self._waiting.pop(int(scheduler.random.random() * len(self._waiting)))):
                break

    def locked(self) -> bool:
        return self._owner is not None

    def is_mine(self) -> bool:
        """Return whether the present task has it."""
        return self._owner is not None and self._owner is here.scheduler.current

    def tell(self, condition: "Condition", waiter: "_Waiter") -> None:
        """Look at what a waiter waits for before the lock is free again, and wake it where that is so."""
        self._told.append((condition, waiter))

    def _judge(self) -> None:
        told, self._told = self._told, []
        for condition, waiter in told:
            condition.judge(waiter)

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
        if self._told and self._times == 1:
            self._judge()
        self._times -= 1
        if self._times <= 0:
            super().release()

    def let_go(self) -> int:
        """Release it whole; return how often it was taken."""
        if self._told:
            self._judge()
        times, self._times = self._times, 0
        super().release()
        return times

    def take_again(self, times: int) -> None:
        """Take it as often as `let_go` has said."""
        super().acquire()
        self._times = times


class _Waiter:
    """A `_Waiter` is a task that waits for a condition."""

    __slots__ = ("is_done", "predicate", "task")

    def __init__(self, task: Task, predicate: Callable[[], Any] | None):
        self.task, self.predicate = task, predicate
        self.is_done = False


class Condition:
    """See `threading.Condition`.

    Who waits for a predicate does not run only to find that it does not hold yet: whoever has notified looks, at the
    moment at which it lets go of the lock.
    """

    __slots__ = ("_lock", "_waiting", "acquire", "release")

    def __init__(self, lock: Any = None):
        self._lock = lock if lock is not None else RLock()
        self._waiting: deque[_Waiter] = deque()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()  # type: ignore[no-any-return]

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None, predicate: Callable[[], Any] | None = None) -> bool:
        scheduler, lock = here.scheduler, self._lock
        times = lock.let_go() if isinstance(lock, RLock) else lock.release()
        waiter = _Waiter(scheduler.current, predicate)
        self._waiting.append(waiter)
        try:
            woken = scheduler.park(timeout)
            if not woken:
                waiter.is_done = True
                leave(self._waiting, waiter)
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
            self.wait(left, predicate)
        return result

    def notify(self, n: int = 1) -> None:
        looks = self._lock.is_mine()
        while n and self._waiting:
            waiter = self._waiting.popleft()
            if waiter.predicate is not None and looks:
                self._lock.tell(self, waiter)
                n -= 1
            else:
                n -= here.scheduler.wake(waiter.task)

    def notify_all(self) -> None:
        self.notify(len(self._waiting))

    def judge(self, waiter: _Waiter) -> None:
        """Wake a waiter that was notified, where what it waits for is so; else it waits on."""
        if waiter.is_done:
            return
        assert waiter.predicate is not None
        try:
            holds = waiter.predicate()
        except Exception:  # noqa: BLE001  # the waiter's own: it meets it when it looks itself
            holds = True
        if holds:
            here.scheduler.wake(waiter.task)
        else:
            self._waiting.append(waiter)


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
            leave(self._waiting, scheduler.current)
            return self._set
        return True
