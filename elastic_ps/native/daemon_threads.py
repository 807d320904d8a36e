"""This module has threads that go on to work while the interpreter ends: a script's last push is exchanged then.

The pools of `concurrent.futures` take no work any more from the moment when the script is over.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

_Item = tuple[Future[None], Callable[..., None], tuple[Any, ...]]


class DaemonThreads:
    """`DaemonThreads` do what they are given, in its order, until they are closed.

    Args:
        count: how many.
        name: of the threads, before their numbers.

    Raises:
        RuntimeError: the system gives no thread.
    """

    def __init__(self, count: int, name: str):
        self._queue: SimpleQueue[_Item | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        try:
            for number in range(count):
                threading.Thread(target=_work, args=(self._queue,), name=f"{name}-{number}", daemon=True).start()
        except RuntimeError:
            self.close()
            raise

    def submit(self, work: Callable[..., None], *arguments: Any) -> "Future[None]":
        """Give them work(*arguments); return its end. Raises RuntimeError once they are closed."""
        future: Future[None] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("closed")
            self._queue.put((future, work, arguments))
        return future

    def close(self) -> None:
        """End them when they have done what they were given."""
        with self._lock:
            self._closed = True
            self._queue.put(None)


def _work(queue: "SimpleQueue[_Item | None]") -> None:
    while (item := queue.get()) is not None:
        future, work, arguments = item
        try:
            work(*arguments)
        except BaseException as error:  # noqa: BLE001  # told to whoever asks the future
            future.set_exception(error)
        else:
            future.set_result(None)
        del item, future, work, arguments  # nothing is kept until the next one comes
    queue.put(None)  # for the next of the threads
