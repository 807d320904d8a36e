"""This module looks at file systems beside the loop and people's requests, which none that hangs may hold up."""

import errno
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

_SECONDS = 20.0
_HANGING_SECONDS = 1.0  # instead, while another look hangs: jobs that have the same wait one after the other
_MOST_LOOKS = 64
"""At once: nobody can end a thread that hangs in a file system, and each has its stack."""

_Look = tuple[Future[bool], float]
"""What a look will have told, and until when it is waited for, in monotonic seconds."""


class StorageLooks:
    """`StorageLooks` wait for what file systems tell, but not for long. They are safe from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looks: dict[str, _Look] = {}  # by what is looked for: those that have not told yet

    def ask(self, what: str, look: Callable[[], bool]) -> bool:
        """Return what a look returns, or raise what it raises.

        Args:
            what: is looked for: as long as a look for it hangs, no other one is begun.
            look: asks the file system.

        Raises:
            TimeoutError: it hangs.
            OSError: no thread can be started, or so many looks hang that no more are begun.
        """
        with self._lock:
            found, until = self._looks.get(what) or self._begin(what, look)
        try:
            return found.result(max(0.0, until - time.monotonic()))
        finally:
            with self._lock:
                if found.done() and self._looks.get(what) == (found, until):
                    del self._looks[what]

    def _begin(self, what: str, look: Callable[[], bool]) -> _Look:
        """Begin to look for something."""
        if len(self._looks) >= _MOST_LOOKS:  # those that have told meanwhile may never be asked for again
            self._looks = {key: each for key, each in self._looks.items() if not each[0].done()}
        if len(self._looks) >= _MOST_LOOKS:
            raise OSError(errno.EAGAIN, f"{_MOST_LOOKS} others do not answer: no more are asked until one does")
        now, found = time.monotonic(), Future[bool]()
        hangs = any(until < now and not other.done() for other, until in self._looks.values())
        try:
            threading.Thread(target=_answer, args=(found, look), name=f"looks for {what}", daemon=True).start()
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, "no thread can be started") from error
        self._looks[what] = found, now + (_HANGING_SECONDS if hangs else _SECONDS)
        return self._looks[what]


def _answer(future: Future[bool], call: Callable[[], bool]) -> None:
    """Let a future have what a call returns, or raises."""
    try:
        future.set_result(call())
    except Exception as error:  # noqa: BLE001  # it is raised where it is waited for
        future.set_exception(error)
