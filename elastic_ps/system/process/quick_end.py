"""A worker's process ends without taking apart what nobody needs to be taken apart.

PyTorch makes 300,000 objects that a garbage collection visits, and an interpreter that ends visits them several times:
0.6 s of one core, and 0.1 s for the destructors of its libraries. All that runs beside the workers that train on when
one is drained, and what it takes apart is freed with the process anyway.
"""

import atexit
import ctypes
import fcntl
import gc
import inspect
import io
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from types import GeneratorType
from typing import Any

_BUFFERS = (io.BufferedWriter, io.BufferedRandom)
_STREAMS = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.FileIO)
_LAST_STANDARD = 2
"""File descriptor of stderr: standard streams are flushed anyway."""

_ONLY_CLOSE = ("grpc", "socket")
"""Packages whose finalisers do what a process's end does as well."""

_frozen = 0
"""How many objects were frozen when `freeze_imports` had frozen any."""

_DESCRIPTORS = Path("/proc/self/fd")
_PRELOADED = "LD_PRELOAD"


def freeze_imports(unless: tuple[type, ...]) -> None:
    """Take all that there is out of garbage collections for good.

    What nothing refers to is freed as before. But an object of now that is in a cycle, or comes to be, is not finalised
    when the process ends, nor found by `gc.get_objects`. So nothing is done where the script has begun already, or has
    a file open that it writes.

    Args:
        unless: types of which a script that only imports yet has made no object.
    """
    if not any(issubclass(type(each), unless) or _may_lose(each) for each in gc.get_objects()):
        global _frozen  # a process imports the adapter once
        gc.freeze()
        _frozen = gc.get_freeze_count()


def script_objects() -> list[Any]:
    """Return what the garbage collector knows since `freeze_imports`, also if the script has frozen what it had."""
    if gc.get_freeze_count() <= _frozen:
        return gc.get_objects()
    gc.unfreeze()
    try:
        return gc.get_objects()
    finally:
        gc.freeze()


def _may_lose(each: Any) -> bool:
    """Return whether an object has data of a file that it may write when it is finalised."""
    return issubclass(type(each), _BUFFERS) and not _is_flushed(each)


def _is_flushed(stream: Any) -> bool:
    """Return whether a stream is closed, or one of the process's own, which Python flushes by itself."""
    try:
        return bool(stream.closed or stream.fileno() <= _LAST_STANDARD)
    except (OSError, ValueError):  # it has no descriptor, or was detached
        return False


def end_quickly() -> None:
    """Let this process end without garbage collections, and without the exit handlers of C and C++ libraries.

    It ends as ever where something may be lost by it: an object that has a finaliser of its own has been made since
    `freeze_imports`, a file is open for writing, or somebody has preloaded a library (see `skip_exit_handlers`).
    """
    atexit.register(_end)


def _end() -> None:
    """End the rest quickly. Handlers are called last first: of those that libraries have, few come after this one."""
    if not _writes_files() and not _has_finalisers():
        gc.freeze()
        skip_exit_handlers()


def _has_finalisers() -> bool:
    """Return whether an object's finaliser may do what the process's end does not."""
    objects = script_objects()
    types = {id(each): each for each in map(type, objects)}  # a metaclass may make them unhashable
    finalised = {number for number, each in types.items() if any("__del__" in base.__dict__ for base in type.mro(each))}
    return any(id(type(each)) in finalised and not _is_harmless(each) for each in objects)


def _is_harmless(each: Any) -> bool:
    """Return whether the finaliser of an object has nothing to do, or nothing that the process's end does not."""
    kind = type(each)
    if kind in _STREAMS:
        return _is_flushed(each)
    if kind is GeneratorType:
        return inspect.getgeneratorstate(each) in (inspect.GEN_CREATED, inspect.GEN_CLOSED)
    return kind.__module__.partition(".")[0] in _ONLY_CLOSE


def _writes_files() -> bool:
    """Return whether a file is open for writing: a library of C may hold back a part of what is in it."""
    try:
        return any(_is_written(int(each.name)) for each in _DESCRIPTORS.iterdir())
    except OSError:
        return True


def _is_written(descriptor: int) -> bool:
    """Return whether a descriptor is of a file that has a name, and may be written by it."""
    if descriptor <= _LAST_STANDARD:
        return False
    try:
        found, mode = os.fstat(descriptor), fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    except OSError:  # it has been closed meanwhile
        return False
    return stat.S_ISREG(found.st_mode) and found.st_nlink > 0 and mode != os.O_RDONLY


def skip_exit_handlers(environment: Mapping[str, str] = os.environ) -> bool:
    """Let exit(3) run no handler that libraries of C and C++ have registered by now; return whether it will.

    C's files are flushed, and the process has the status that it would have. Nothing is done where somebody has
    preloaded a library, as profilers and leak checkers do, which write what they found in such a handler, or where
    there is no glibc.

    Args:
        environment: of the process.
    """
    libc = ctypes.CDLL(None)
    if environment.get(_PRELOADED) or not (hasattr(libc, "on_exit") and hasattr(libc, "fcloseall")):
        return False
    for last in (libc._exit, libc.fcloseall):  # the one that is registered last runs first
        libc.on_exit(ctypes.cast(last, ctypes.c_void_p), None)
    return True
