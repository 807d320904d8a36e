"""This module compiles functions with Numba, and keeps a cache that a new version of the sources never reads."""

import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy
from numba.core.compiler_lock import global_compiler_lock

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.system.file_lock import try_lock
from elastic_ps.system.private_files import private_folder
from elastic_ps.system.state_folder import state_folder

log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

_config: Any = numba.config
_PACKAGE = Path(__file__).parents[1]
_PREFIX = f"compiled-numba{numba.__version__}-numpy{numpy.__version__}-"
"""Environments with other versions beside this one keep what they have compiled."""

_LOCK_SECONDS = 60.0
"""How long a process waits for one that compiles the same function: it may be frozen, and the longest takes 12 s."""
_LOOK_SECONDS = 0.02


def compiled(function: F) -> F:
    """Compile a function of numbers and arrays at its first call; it does not hold the interpreter's lock."""
    return cast(F, _by_one_process(numba.njit(cache=bool(_config.CACHE_DIR), nogil=True)(function)))


def inlined(function: F) -> F:
    """Compile a small function into its compiled callers, so that arrays need not be handed over."""
    return cast(F, _by_one_process(numba.njit(cache=bool(_config.CACHE_DIR), nogil=True, forceinline=True)(function)))


def _by_one_process(dispatcher: Any) -> Any:
    """Let one of the processes that need a function at the same time compile it, and the others load what it saves."""
    if _config.DISABLE_JIT or not _config.CACHE_DIR:  # NUMBA_DISABLE_JIT: it is the plain function
        return dispatcher
    compile_or_load, function = dispatcher.compile, dispatcher.py_func

    def alone(signature: Any) -> Any:
        with global_compiler_lock, _lock(f"{function.__module__}.{function.__qualname__}"):  # threads, then processes
            return compile_or_load(signature)

    dispatcher.compile = alone
    return dispatcher


@contextmanager
def _lock(name: str) -> Iterator[None]:
    """Keep other processes from the lock of this name, unless one has had it for too long, or there are no locks."""
    lock = _taken(name)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _taken(name: str) -> int | None:
    """Return a descriptor that holds the lock; None: the cache cannot be written or locked, or its holder stands."""
    folder, until = Path(_config.CACHE_DIR), time.monotonic() + _LOCK_SECONDS
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while (lock := try_lock(folder / f"{name}.lock")) is None and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
    except OSError:
        return None
    if lock is None:
        log.warning(
            "another process has compiled %s for more than %g s, or has stopped: this one does it, too",
            *(name, _LOCK_SECONDS),
        )
    return lock


def cache_folder(sources: Iterable[Path], parent: Path) -> Path:
    """Return the folder of what was compiled from exactly these sources, and remove those of others.

    Numba keeps a compiled function until the file that defines it changes: one in another file which it calls may be
    another by then, and a type that is gone makes its cache unreadable.

    Args:
        sources: all files with compiled functions.
        parent: where the folder is.
    """
    stamp = hashlib.sha256()
    for source in sorted(sources):
        stamp.update(source.read_bytes())
    folder = parent / f"{_PREFIX}{stamp.hexdigest()[:16]}"
    for other in parent.glob(f"{_PREFIX}*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    return folder


def _is_writable(folder: Path) -> bool:
    """Make a folder; return whether files can be made in it, as Numba will."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def usable_cache(sources: Iterable[Path], package: Path, own: Iterable[Path]) -> str:
    """Return the first folder that can be written to; "": there is none, and each process compiles for itself.

    Args:
        sources: all files with compiled functions.
        package: where the folder is, unless the package is another user's, as root's, or on a read-only disk.
        own: where else it may be. What is in it is run, so nobody but this user may write there.
    """
    files = list(sources)
    if _is_writable(folder := cache_folder(files, package)):
        return str(folder)
    for parent in own:
        with suppress(ConfigurationError, OSError):
            private_folder(parent, [_PREFIX])
            if _is_writable(folder := cache_folder(files, parent)):
                return str(folder)
    return ""


def _of_the_user() -> Iterator[Path]:
    """Yield where this user may keep what this installation compiles; another one removes what is not its own."""
    installation = hashlib.sha256(os.fsencode(_PACKAGE)).hexdigest()[:16]
    with suppress(ConfigurationError):
        yield state_folder() / "elastic_ps" / f"compiled-{installation}"
    with suppress(OSError):
        yield Path(tempfile.gettempdir()) / f"elastic_ps-compiled-{os.geteuid()}-{installation}"


if not _config.CACHE_DIR:
    _compiling = [path for path in _PACKAGE.glob("*/**/*.py") if b"cluster.compiled import" in path.read_bytes()]
    _config.CACHE_DIR = usable_cache([Path(__file__), *_compiling], _PACKAGE / "__pycache__", _of_the_user())
elif not _is_writable(Path(_config.CACHE_DIR)):  # NUMBA_CACHE_DIR, without which Numba looks for a folder of its own
    _config.CACHE_DIR = ""
