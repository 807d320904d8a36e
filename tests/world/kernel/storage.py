"""The storage of the world's checkpoints: files in memory, which outlive every process; it may be slow, or fail."""

import os
from types import SimpleNamespace
from typing import Any

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

from tests.world.kernel.threads import here

_WRITING = ("makedirs", "mv", "rm", "rm_file")
_READING = ("ls", "info")


class Storage:
    """A `Storage` is a file system. See `fsspec.AbstractFileSystem`: as much of it as checkpoints need.

    Attributes:
        failing: what every operation fails with; 0: it works.
        slow: seconds that each takes.
    """

    def __init__(self) -> None:
        self.failing = 0
        self.slow = 0.0
        MemoryFileSystem.store.clear()
        MemoryFileSystem.pseudo_dirs[:] = [""]
        self._files = MemoryFileSystem()
        for name in (*_WRITING, *_READING, "open", "invalidate_cache"):
            setattr(self, name, self._asked(getattr(self._files, name)))

    def exists(self, path: str) -> bool:
        """Return False by any error, as `exists` of most file systems does."""
        try:
            self.info(path)
        except OSError:
            return False
        return True

    def module(self) -> SimpleNamespace:
        """Return `fsspec` as production sees it."""
        core = SimpleNamespace(**{**vars(fsspec.core), "url_to_fs": self._located})
        return SimpleNamespace(**{**vars(fsspec), "core": core})

    def _located(self, url: str) -> tuple[Any, str]:
        return self, self._files._strip_protocol(url)

    def _asked(self, act: Any) -> Any:
        def ask(*arguments: Any, **named: Any) -> Any:
            if self.slow and here.scheduler.current is not None:
                here.scheduler.park(self.slow)
            if self.failing:
                raise OSError(self.failing, os.strerror(self.failing))
            return act(*arguments, **named)

        return ask
