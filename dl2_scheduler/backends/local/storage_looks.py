"""This module looks at file systems beside the loop, which none that hangs may keep from other jobs."""

import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future

_SECONDS = 20.0
_HANGING_SECONDS = 1.0  # instead, while another look hangs: jobs that have the same wait one after the other


class StorageLooks:
    """`StorageLooks` wait for what file systems tell, but not for long. They are for one thread."""

    def __init__(self) -> None:
        self._hanging: dict[str, Future[bool]] = {}  # by what is looked for: those that have taken too long

    def ask(self, what: str, look: Callable[[], bool]) -> bool:
        """Return what a look returns, or raise what it raises.

        Args:
            what: is looked for: as long as a look for it hangs, no other one is begun.
            look: asks the file system.

        Raises:
            TimeoutError: it hangs.
            OSError: no thread can be started.
        """
        found, seconds = self._hanging.pop(what, None), 0.0
        if found is None:
            hangs = any(not each.done() for each in self._hanging.values())
            found, seconds = Future(), _HANGING_SECONDS if hangs else _SECONDS
            try:
                threading.Thread(target=_answer, args=(found, look), name=f"looks for {what}", daemon=True).start()
            except RuntimeError as error:
                raise OSError(errno.EAGAIN, "no thread can be started") from error
        try:
            return found.result(seconds)
        except TimeoutError:
            self._hanging[what] = found
            raise


def _answer(future: Future[bool], call: Callable[[], bool]) -> None:
    """Let a future have what a call returns, or raises."""
    try:
        future.set_result(call())
    except Exception as error:  # noqa: BLE001  # it is raised where it is waited for
        future.set_exception(error)
