"""Locks and what is built on them, over the world's scheduler: they do what those of `threading` do."""

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tests.world.kernel.scheduler import Task

here: SimpleNamespace = SimpleNamespace(scheduler=None)
"""Whose scheduler the present world has."""


def leave(waiting: Any, who: Any) -> None:
    """Wait no more, where nobody has taken `who` off the list just now."""
    if who in waiting:
        waiting.remove(who)


class Lock:
    """See `threading.Lock`."""

    __slots__ = ("_owner", "_waiting")

    def __init__(self) -> None:
        self._owner: Task | None = None
        self._waiting: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = here.scheduler
        if scheduler.left:
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

    def release(self, *_error: object) -> None:
        self._owner = None
        if self._waiting:
            self._pass_on()

    __enter__, __exit__ = acquire, release

    def _pass_on(self) -> None:
        scheduler = here.scheduler
        while self._waiting:
            if scheduler.wake(self._waiting.pop(int(scheduler.random.random() * len(self._waiting)))):
                break

    def locked(self) -> bool:
        return self._owner is not None


class RLock(Lock):
    """See `threading.RLock`."""

    __slots__ = ("_times", "_told")

    def __init__(self) -> None:
        super().__init__()
        self._times = 0
        self._told: list[_Waiter] = []  # of a condition: those that have been notified

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = here.scheduler
        if self._owner is None:
            left = scheduler.left
            if left != 1:
                if left:
                    scheduler.left = left - 1
                self._owner, self._times = scheduler.current, 1
                return True
        elif self._owner is scheduler.current:
            self._times += 1
            return True
        if Lock.acquire(self, blocking, timeout):
            self._times = 1
            return True
        return False

    def release(self, *_error: object) -> None:
        if self._times > 1:
            self._times -= 1
            return
        if self._told:
            self._judge()
        self._times, self._owner = 0, None
        if self._waiting:
            self._pass_on()

    __enter__, __exit__ = acquire, release

    def let_go(self) -> int:
        """Release it whole; return how often it was taken."""
        if self._told:
            self._judge()
        times, self._times, self._owner = self._times, 0, None
        if self._waiting:
            self._pass_on()
        return times

    def take_again(self, times: int) -> None:
        """Take it as often as `let_go` has said."""
        self.acquire()
        self._times = times

    def _judge(self) -> None:
        """See `Condition`."""


class _Waiter:
    """A `_Waiter` is a task that waits for a condition."""

    __slots__ = ("is_done", "predicate", "task")

    def __init__(self, task: Task, predicate: Callable[[], Any] | None):
        self.task, self.predicate = task, predicate
        self.is_done = False


class Condition(RLock):
    """See `threading.Condition`. It is its own lock: nobody in production shares one among conditions.

    Who waits for a predicate does not run only to find that it does not hold yet: whoever has notified looks, at the
    moment at which it lets go of the lock.
    """

    __slots__ = ("_waiters",)

    def __init__(self, lock: RLock | None = None):
        super().__init__()
        self._waiters: deque[_Waiter] = deque()

    def wait(self, timeout: float | None = None, predicate: Callable[[], Any] | None = None) -> bool:
        scheduler = here.scheduler
        times = self.let_go()
        waiter = _Waiter(scheduler.current, predicate)
        self._waiters.append(waiter)
        try:
            woken = scheduler.park(timeout)
            if not woken:
                waiter.is_done = True
                leave(self._waiters, waiter)
        finally:
            self.take_again(times)
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
        looks = self._owner is not None and self._owner is here.scheduler.current
        while n and self._waiters:
            waiter = self._waiters.popleft()
            if waiter.predicate is not None and looks:
                self._told.append(waiter)
                n -= 1
            else:
                n -= here.scheduler.wake(waiter.task)

    def notify_all(self) -> None:
        if self._waiters:
            self.notify(len(self._waiters))

    def _judge(self) -> None:
        """Wake those that were notified and for whom what they wait for is so, before the lock is free again."""
        told, self._told = self._told, []
        for waiter in told:
            if waiter.is_done:
                continue
            assert waiter.predicate is not None
            try:
                holds = waiter.predicate()
            except Exception:  # noqa: BLE001  # the waiter's own: it meets it when it looks itself
                holds = True
            if holds:
                here.scheduler.wake(waiter.task)
            else:
                self._waiters.append(waiter)


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
