"""This module runs a program beside the loop, in a process of its own.

What it does or dies of cannot touch the decisions.
"""

import array
import fcntl
import json
import logging
import math
import os
import signal
import subprocess
import termios
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from elastic_ps.launch.processes.guard import die_with_the_starter
from elastic_ps.system.process.proc_stat import stat_fields

log = logging.getLogger(__name__)

_NICENESS = 10
_LEAST_NICE = 19  # as Linux has it: the lowest weight
_CHUNK = 1 << 16
_MOST_HEARD = 1000
_PATIENCE = 5.0
_REAPED = 1.0  # seconds in which a process is gone that was killed
FROZEN_SECONDS = 120.0
"""In which a program that has lines to read did nothing at all: it is stopped, or stuck."""
_LONG = 10  # lines that a program has to be told before its end is none of a row, and the last one is past
_RUNNABLE = "R"  # also where others have all cores: one that takes only idle ones may wait for long
_USER_TIME = 11  # of the fields behind the name in /proc/PID/stat, as proc(5) counts from 3 on
_MOST_DOUBLINGS = 6  # of the lines between two starts


class SideProgram:
    """A `SideProgram` is told lines on its stdin and says lines on its stdout. It ends where its stdin does.

    It is started when there is something to tell it, and so again after it has ended; ever less often where it always
    ends soon, or before it has said anything. One that leaves lines unread and does not run meanwhile is ended.

    Args:
        name: for logs.
        command: the command of the program.
        output: file that takes its stderr.
        now: seconds, of a clock that never goes back.

    Attributes:
        trouble: how it ended, the last time that it did though nobody asked; "": it has not, or has long gone on since.
    """

    def __init__(self, name: str, command: Sequence[str], output: Path, now: Callable[[], float] = time.monotonic):
        self.trouble = ""
        self._now = now
        self._ran = 0.0, 0  # the time at which it was seen to go on, and its processor time then
        self._frozen = ""  # what is said of its end
        self._name, self._command, self._output = name, tuple(command), output
        self._process: subprocess.Popen[str] | None = None
        self._told = self._deaths = self._rest = (
            0  # lines since its start; soon ends in a row; lines until it is started
        )
        self._heard: deque[str] = deque(maxlen=_MOST_HEARD)
        self._spoke = False  # since its start

    def tell(self, line: str) -> None:
        """Say something; nothing happens where it does not listen."""
        self._end_if_frozen()
        process = self._running()
        if process is None or process.stdin is None or self._frozen:
            return
        self._told += 1
        try:
            os.write(process.stdin.fileno(), f"{line}\n".encode())
            if self._told >= _LONG and self._spoke:
                self.trouble = ""
        except BlockingIOError:
            log.warning("%s has not listened for long", self._name)
        except BrokenPipeError:
            log.debug("%s ends", self._name)

    def heard(self) -> list[str]:
        """Return what it has said since somebody asked last."""
        found = []
        while self._heard:
            found.append(self._heard.popleft())
        return found

    def said(self) -> Iterator[dict[str, Any]]:
        """Yield what it has said since somebody asked last, where it says JSON objects; other lines are logged."""
        for line in self.heard():
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                found = None
            if isinstance(found, dict):
                yield found
            else:
                log.warning("%s said what is not understood: %.100r", self._name, line)

    def close(self) -> None:
        """End it."""
        if (process := self._process) is None:
            return
        self._process = None
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            try:
                process.wait(_REAPED)
            except subprocess.TimeoutExpired:  # in a system call that hangs, or no core has had time for it
                threading.Thread(target=process.wait, name=f"reaps {self._name}", daemon=True).start()

    def _end_if_frozen(self) -> None:
        """End it where it has not run for long, though there is something to read for it."""
        process, now = self._process, self._now()
        if process is None or process.stdin is None or process.poll() is not None or self._frozen:
            return
        state, ticks = _seen(process.pid)
        if state == _RUNNABLE or ticks != self._ran[1] or not _unread(process.stdin.fileno()):
            self._ran = now, ticks
        elif now - self._ran[0] >= FROZEN_SECONDS:
            self._frozen = f"it did nothing for {now - self._ran[0]:.0f} s, though it was told of slots, and was ended"
            self.trouble = self._frozen
            process.kill()  # in a system call that hangs it ends later: nothing is told or started until then
            with suppress(subprocess.TimeoutExpired):
                process.wait(_REAPED)

    def _running(self) -> "subprocess.Popen[str] | None":
        if self._process is not None and (status := self._process.poll()) is not None:
            self.trouble = self._frozen or _ending(status, self._output)
            self._frozen = ""
            self._deaths = 0 if self._told >= _LONG and self._spoke else self._deaths + 1
            self._rest = 2 ** min(max(self._deaths - 1, 0), _MOST_DOUBLINGS) - 1
            log.error("%s: %s; it is started again after %d slots", self._name, self.trouble, self._rest)
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process = None
        if self._process is None and self._rest:
            self._rest -= 1
        elif self._process is None:
            try:
                self._process, self._told, self._spoke = self._started(), 0, False
                self._ran = self._now(), 0
            except OSError as error:
                self.trouble = f"it cannot be started: {error}"
                log.error("%s: %s", self._name, self.trouble)  # noqa: TRY400  # for operators
        return self._process

    def _started(self) -> "subprocess.Popen[str]":
        self._output.parent.mkdir(parents=True, exist_ok=True)
        with self._output.open("a") as output:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                errors="replace",
                start_new_session=True,  # Ctrl-C is the loop's
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        try:
            threading.Thread(target=self._hear, args=(process,), name=f"hears {self._name}", daemon=True).start()
        except RuntimeError as error:
            with process:
                process.kill()
            raise OSError("no thread can be started") from error
        return process

    def _hear(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._spoke = True
                self._heard.append(line.rstrip("\n"))


def _seen(pid: int) -> tuple[str, int]:
    """Return a process's state, and the processor time that it has used, in the kernel's ticks; -1: it is gone."""
    try:
        fields = stat_fields(pid)
    except OSError:
        return "", -1
    return fields[0], int(fields[_USER_TIME]) + int(fields[_USER_TIME + 1])


def _unread(descriptor: int) -> int:
    """Return the bytes in a pipe that nobody has read yet."""
    found = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, found)
    return found[0]


def told(descriptor: int = 0) -> Iterator[str]:
    """Yield, in such a program, the last line of all that was told meanwhile, until there is no more.

    Args:
        descriptor: the descriptor of the file to read; stdin.
    """
    rest = b""
    while chunk := os.read(descriptor, _CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines[-1].decode()


def answer_slots(
    answer: Callable[[float], str | None], slot_seconds: Callable[[], float], most: float, part: float
) -> None:
    """Answer, in such a program, each slot's number that is told, by a line, until there are no more.

    Whatever an answer raises is said as {"slot": 3, "error": why}, and the next slot is answered all the same. It is
    logged once, however often it is raised in a row, so that no log fills the disk.

    Args:
        answer: returns the line, None where there is nothing to say, after so many seconds of computing at most.
        slot_seconds: returns the length of a slot, NaN where it is not known.
        most: seconds of computing for an answer.
        part: of a slot that it may take, if that is less.
    """
    before = ""
    for line in told():
        why = ""
        try:
            length = slot_seconds()
            found = answer(most if math.isnan(length) else min(most, part * length))
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            if why != before:
                log.exception("slot %s", line)
            found = json.dumps({"slot": int(line), "error": why})
        before = why
        if found is not None:
            print(found, flush=True)


def be_nice(only_idle_cores: bool = False) -> None:
    """Let other processes go first, in such a program, and let it die with the loop, however that dies.

    It ends when nobody tells it anything any more; but one that has only idle cores may not come to that for hours on a
    busy machine, and meanwhile keeps its memory, and a run in which no other one can learn.

    Linux weighs the sessions of a machine against each other before it looks at their processes (autogroups, sched(7)),
    and such a program is a session of its own, so that its nice value alone would mean nothing to others.

    Args:
        only_idle_cores: run where nobody else does.
    """
    die_with_the_starter()
    os.nice(_NICENESS)
    if only_idle_cores:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if os.getsid(0) != os.getpid():
        return  # others are in its session
    try:
        whole = _LEAST_NICE if only_idle_cores else session_niceness(Path(f"/proc/{os.getppid()}/autogroup"))
        Path("/proc/self/autogroup").write_text(str(min(whole + _NICENESS, _LEAST_NICE)))
    except OSError as error:
        log.debug("this kernel does not weigh sessions: %s", error)


def session_niceness(file: Path) -> int:
    """Return the nice value of a process's whole session; 0: the kernel has none.

    Args:
        file: `autogroup` of the process, in /proc: "/autogroup-42 nice 5".
    """
    found = file.read_text().split()
    return int(found[-1]) if found else 0


def _ending(status: int, output: Path) -> str:
    """Return how a program has ended, for people; of one that was killed its output says nothing."""
    if status < 0:
        return f"it was killed by signal {-status} ({signal.strsignal(-status)})"
    return f"it ended with status {status}; {output} says why"
