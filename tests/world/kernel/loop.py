"""asyncio's event loop in the world: the standard library's own, which waits by the world's scheduler."""

import asyncio
from asyncio import base_events
from collections.abc import Callable, Coroutine
from typing import Any

from greenlet import GreenletExit

from tests.world.kernel.scheduler import Task
from tests.world.kernel.threads import Thread, here

_LAST_TURNS = 12


class _Selector:
    """What a loop waits by: `select` lets other tasks run until something is to be done."""

    def __init__(self) -> None:
        self._task: Task | None = None
        self._woken = False
        self.draining = False

    def select(self, timeout: float | None) -> list[Any]:
        if here.scheduler.over:
            if not self.draining:  # a coroutine that was ended in the middle has swallowed the end
                raise GreenletExit
            return []
        if self._woken or timeout == 0:
            self._woken = False
            here.scheduler.pause()
            return []
        self._task = here.scheduler.current
        here.scheduler.park(timeout)
        self._task, self._woken = None, False
        return []

    def wake(self) -> None:
        self._woken = True
        if self._task is not None:
            here.scheduler.wake(self._task)


class WorldLoop(base_events.BaseEventLoop):
    """See `asyncio.AbstractEventLoop`."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Selector()

    def time(self) -> float:
        return here.scheduler.now  # type: ignore[no-any-return]

    def _process_events(self, event_list: Any) -> None:
        """There are none: what comes from outside is called."""

    def wake(self) -> None:
        """Let its thread look for what there is to do."""
        self._selector.wake()

    _write_to_self = wake

    def add_signal_handler(self, sig: int, callback: Callable[..., Any], *args: Any) -> None:
        process = here.scheduler.current.process
        process.handlers[sig] = lambda number, frame: self.call_soon_threadsafe(callback, *args)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        future: asyncio.Future[Any] = self.create_future()

        def settle(act: Callable[[Any], None], value: Any) -> None:
            if not future.done():
                act(value)

        def work() -> None:
            try:
                value = func(*args)
            except Exception as error:  # noqa: BLE001  # it is the caller's
                self.call_soon_threadsafe(settle, future.set_exception, error)
            else:
                self.call_soon_threadsafe(settle, future.set_result, value)

        Thread(target=work, name="executor").start()
        return future

    def drain(self) -> None:
        """End what is left of a loop whose world is over."""
        self._selector.draining = True
        for _ in range(_LAST_TURNS):
            for task in asyncio.all_tasks(self):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                task.cancel()
            self.stop()
            self.run_forever()


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """See `asyncio.run`."""
    loop = WorldLoop()
    task = here.scheduler.current
    task.loop = loop
    try:
        return loop.run_until_complete(main)
    except GreenletExit:
        loop.drain()
        raise
    finally:
        task.loop = None
        asyncio._set_running_loop(None)
        loop.close()
