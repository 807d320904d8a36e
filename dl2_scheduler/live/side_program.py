"""This module runs a program beside the loop, in a process of its own.

What it does or dies of cannot touch the decisions.
"""

import logging
import os
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

log = logging.getLogger(__name__)

_NICENESS = 10
_CHUNK = 1 << 16
_MOST_HEARD = 1000
_PATIENCE = 5.0
_LONG = 10  # lines that a program has to be told before its end is none of a row
_MOST_DOUBLINGS = 6  # of the lines between two starts


class SideProgram:
    """A `SideProgram` is told lines on its stdin and says lines on its stdout. It ends where its stdin does.

    It is started when there is something to tell it, and so again after it has ended; ever less often where it always
    ends soon, or before it has said anything.

    Args:
        name: for logs.
        command: the command of the program.
        output: file that takes its stderr.

    Attributes:
        trouble: how it ended, the last time that it did though nobody asked; "": it has not.
    """

    def __init__(self, name: str, command: Sequence[str], output: Path):
        self.trouble = ""
        self._name, self._command, self._output = name, tuple(command), output
        self._process: subprocess.Popen[str] | None = None
        self._told = self._deaths = self._rest = (
            0  # lines since its start; soon ends in a row; lines until it is started
        )
        self._heard: deque[str] = deque(maxlen=_MOST_HEARD)
        self._spoke = False  # since its start

    def tell(self, line: str) -> None:
        """Say something; nothing happens where it does not listen."""
        process = self._running()
        if process is None or process.stdin is None:
            return
        self._told += 1
        try:
            os.write(process.stdin.fileno(), f"{line}\n".encode())
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
            process.wait()

    def _running(self) -> "subprocess.Popen[str] | None":
        if self._process is not None and (status := self._process.poll()) is not None:
            self.trouble = f"it ended with status {status}; {self._output} says why"
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
                start_new_session=True,  # Ctrl-C is the loop's
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        threading.Thread(target=self._hear, args=(process,), name=f"hears {self._name}", daemon=True).start()
        return process

    def _hear(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._spoke = True
                self._heard.append(line.rstrip("\n"))


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


def be_nice() -> None:
    """Let other processes go first, in such a program."""
    os.nice(_NICENESS)
