"""This module starts, recognises, signals and watches processes that outlive their parent.

It works on Linux only, as elasticrun does.
"""

import errno
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path

from dl2_scheduler.backends.local.runtime import LauncherProcess
from elastic_ps.system.process.proc_stat import birth_of, stat_fields

log = logging.getLogger(__name__)

_GATE = 'read -r go || exit 0; exec "$@" </dev/null'
"""The program begins when its parent has written down who it is; where the parent dies before, it never does."""

_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
# of the fields behind the name in /proc/PID/stat: proc(5) counts them from 3 on
_GROUP, _USER, _SYSTEM, _RESIDENT = 2, 11, 12, 21


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    log: Path,
    started: Callable[[LauncherProcess], None],
    ended: Callable[[], None],
    umask: int = -1,
) -> "subprocess.Popen[bytes]":
    """Start a program in a session of its own, and return it.

    Args:
        command: argv.
        environment: complete.
        folder: the folder it runs in.
        log: file that its output is added to.
        started: called with the process before the program begins.
        ended: called from a thread when it has ended.
        umask: the umask of the program; -1: this process's.

    Raises:
        OSError: it cannot be started.
    """
    child = _wait_at_gate(command, environment, folder, log, umask)
    assert child.stdin is not None, "asked for above"
    with child.stdin as gate:
        if (birth := birth_of(child.pid)) is None:  # nobody would ever see the end of what was not written down
            gate.close()
            child.wait()
            raise OSError(errno.EAGAIN, "its process was killed before it began")
        try:
            threading.Thread(target=_reap, args=(child, ended), name=f"reap-{child.pid}", daemon=True).start()
        except RuntimeError as error:
            gate.close()  # at which the child ends
            child.wait()
            raise OSError(errno.EAGAIN, "no thread can be started") from error
        started(LauncherProcess(child.pid, birth))
        with suppress(BrokenPipeError):
            gate.write(b"go\n")
            gate.flush()
    return child


def _wait_at_gate(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path, umask: int
) -> "subprocess.Popen[bytes]":
    """Start a program behind `_GATE`; see `start`."""
    with log.open("ab") as output:
        return subprocess.Popen(
            ["/bin/sh", "-c", _GATE, "sh", *command],
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=umask,
        )


def is_alive(process: LauncherProcess) -> bool:
    """Return whether this very process runs, and not another that has its number now."""
    return birth_of(process.pid) == process.birth


@dataclass(frozen=True)
class Totals:
    """`Totals` say what a process group has used since its processes began.

    Attributes:
        cpu_seconds: used.
        bytes: resident, now.
    """

    cpu_seconds: float
    bytes: int


def totals() -> Mapping[int, Totals]:
    """Return the totals of every process group of this machine, by its number."""
    found: dict[int, Totals] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat_fields(path.parent.name)
        except OSError:  # it has ended meanwhile, or is another user's, and hidden
            continue
        group, old = int(fields[_GROUP]), found.get(int(fields[_GROUP]), Totals(0.0, 0))
        seconds = (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS
        found[group] = Totals(old.cpu_seconds + seconds, old.bytes + int(fields[_RESIDENT]) * _PAGE)
    return found


def pin(pid: int, cores: frozenset[int]) -> None:
    """Let a process run on these cores alone, with all its threads and those that they start from now on.

    Where the system refuses, as cores were taken from this machine or program, the process runs where it may.
    """
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return
    except OSError as error:
        log.warning("process %d cannot be kept to the cores %s: %s", pid, sorted(cores), error)


def terminate(process: LauncherProcess) -> None:
    """Send SIGTERM to this very process, and let it go on if it is stopped; nothing happens where it has ended."""
    _send(process, signal.SIGTERM, signal.SIGCONT)


def let_go_on(process: LauncherProcess) -> None:
    """Let this very process go on if somebody has stopped it (SIGSTOP); nothing happens where it has ended."""
    _send(process, signal.SIGCONT)


def _send(process: LauncherProcess, *signals: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(process.pid)
        try:
            if is_alive(process):  # and the descriptor, opened before, can be of no later one
                for each in signals:
                    signal.pidfd_send_signal(descriptor, each)
        finally:
            os.close(descriptor)


def watch(process: LauncherProcess, ended: Callable[[], None]) -> None:
    """Call `ended`, from a thread, when a process ends that is nobody's child here.

    Where no thread can be started its end is seen by who looks at the next slot's start.
    """
    try:
        threading.Thread(target=_await_end, args=(process, ended), name=f"watch-{process.pid}", daemon=True).start()
    except RuntimeError as error:
        log.warning("the end of process %d is seen late: %s", process.pid, error)


def _await_end(process: LauncherProcess, ended: Callable[[], None]) -> None:
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(process.pid)
        try:
            if is_alive(process):
                wait([descriptor])  # select takes none above 1023
        finally:
            os.close(descriptor)
    ended()


def _reap(child: "subprocess.Popen[bytes]", ended: Callable[[], None]) -> None:
    child.wait()
    ended()
