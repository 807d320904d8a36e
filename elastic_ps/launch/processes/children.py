"""This module keeps the node processes of a launcher: which run, and when one that shall end is made to."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from elastic_ps.core.configuration import Role
from elastic_ps.launch import decide
from elastic_ps.launch.decide import LocalProcess, WantedNodes
from elastic_ps.launch.processes.child_process import ChildProcess
from elastic_ps.launch.processes.output import MergedStream, NodeLog
from elastic_ps.launch.processes.stillness import Stillness

JOIN_SECONDS = 60.0
"""How long a script may import, read its data and build its model before people are told that it has not joined."""


@dataclass
class _Child:
    """A `_Child` is a running process; its deadlines are monotonic seconds, None where there is none (any more)."""

    local: LocalProcess
    process: ChildProcess
    log: NodeLog
    term_at: float | None = None
    kill_at: float | None = None
    join_by: float | None = None
    stillness: Stillness | None = None


class Children:
    """A `Children` is all node processes of one launcher. One thread uses it.

    Args:
        logs: folder of the log files.
        merged: takes every line too.
        exited: called from another thread with the nonce and the exit status of each process.
    """

    def __init__(self, logs: Path, merged: MergedStream, exited: Callable[[str, int], None]):
        self._logs = logs
        self._merged = merged
        self._exited = exited
        self._children: dict[str, _Child] = {}

    def __bool__(self) -> bool:
        """Return whether any runs."""
        return bool(self._children)

    @property
    def locals(self) -> list[LocalProcess]:
        """The processes as decisions see them, in order of start."""
        return [child.local for child in self._children.values()]

    def start(self, local: LocalProcess, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start a process.

        Args:
            local: what decisions see of it.
            command: argv.
            environment: of the process, complete.

        Raises:
            OSError: the system has no process for it now.
        """
        log = NodeLog(self._logs, local.nonce, self._merged)
        exited = self._exited
        try:
            process = ChildProcess(local.nonce, command, environment, log, lambda status: exited(local.nonce, status))
        except OSError:
            log.close()
            raise
        now = time.monotonic()
        join_by = now + JOIN_SECONDS if local.role is Role.WORKER else None
        self._children[local.nonce] = _Child(local, process, log, join_by=join_by, stillness=Stillness(process))

    def observe(self, wanted: WantedNodes) -> list[str]:
        """Take what the coordinator's word tells about these processes; return the news in it, for people."""
        news: list[str] = []
        for local in decide.observe(self.locals, wanted):
            child = self._children[local.nonce]
            if local.node != child.local.node:
                child.log.rename(local.node)
                child.join_by = child.stillness = None
                news.append(f"{local.node} has joined (pid {child.process.pid})")
            if local.leaving and not child.local.leaving:
                news.append(f"{local.node} is leaving")
            child.local = local
        return news

    def remove(self, nonce: str) -> tuple[LocalProcess, NodeLog]:
        """Forget a process that has exited; return it and its log."""
        child = self._children.pop(nonce)
        return child.local, child.log

    def end(self, nonce: str, patience: float, grace: float) -> None:
        """Make a process end: time to end by itself, then SIGTERM, then SIGKILL, unless `kill_in` has said sooner.

        Args:
            nonce: of the process.
            patience: seconds until SIGTERM.
            grace: seconds from then until SIGKILL.
        """
        child = self._children[nonce]
        child.local = replace(child.local, ending=True)
        child.term_at = time.monotonic() + patience
        child.kill_at = min(child.term_at + grace, math.inf if child.kill_at is None else child.kill_at)

    def kill_in(self, nonce: str, seconds: float, wanted: bool = True) -> None:
        """Give a process that may be frozen `seconds` to end by itself, then SIGKILL.

        Args:
            nonce: of the process.
            seconds: until then.
            wanted: its end is a death.
        """
        child = self._children[nonce]
        child.local = replace(child.local, ending=child.local.ending or not wanted)
        child.kill_at = min(time.monotonic() + seconds, math.inf if child.kill_at is None else child.kill_at)

    def end_all(self, patience: float, grace: float) -> None:
        """Call `end` for every process; one that has not joined has nothing to end, and is given no patience."""
        for nonce, child in self._children.items():
            self.end(nonce, patience if child.local.node else 0.0, grace)

    @property
    def deadline(self) -> float:
        """The monotonic seconds at which `enforce`, `late` or `still` has something to do next; infinite: never."""
        times = [(child.term_at, child.kill_at, child.join_by) for child in self._children.values()]
        looks = [child.stillness.look_at for child in self._children.values() if child.stillness is not None]
        return min([*looks, *(at for three in times for at in three if at is not None)], default=math.inf)

    def late(self) -> list[str]:
        """Return, once for each, the names of workers whose scripts have not joined the job in `JOIN_SECONDS`."""
        now = time.monotonic()
        due = [child for child in self._children.values() if child.join_by is not None and now >= child.join_by]
        for child in due:
            child.join_by = None
        return [child.local.name for child in due if not child.local.ending]

    def still(self) -> list[str]:
        """Kill the processes that have been stopped for `STILL_SECONDS` and have not joined; return their names."""
        still = [child for child in self._children.values() if child.stillness is not None and child.stillness.look()]
        for child in still:
            child.stillness = None
            child.process.kill()
        return [child.local.name for child in still]

    def enforce(self) -> list[str]:
        """Signal what should have ended by now; return the names of those killed."""
        now = time.monotonic()
        killed: list[str] = []
        for child in self._children.values():
            if child.term_at is not None and now >= child.term_at:
                child.term_at = None
                child.local = replace(child.local, signalled=True)
                child.process.terminate()
                if child.process.is_stopped:
                    child.kill_at = now
            if child.kill_at is not None and now >= child.kill_at:
                child.kill_at = None
                child.local = replace(child.local, signalled=True)
                child.process.kill()
                killed.append(child.local.name)
        return killed

    def kill(self) -> None:
        """Send SIGKILL to all, and to what they have started."""
        for child in self._children.values():
            child.process.kill()
