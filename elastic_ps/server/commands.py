"""A server runs each of the scripts' commands once, in a thread of its own, however often it is asked for."""

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.module_file import ModuleFile
from elastic_ps.system.module_files import load
from protos import elastic_pb2 as pb

log = logging.getLogger(__name__)

REMEMBERED = 1000
"""Commands whose answers are given again: a coordinator that was started again asks once more."""


class CommandRunner:
    """A `CommandRunner` calls `server_command` of the job's modules for one command after another.

    At most one for each waiting script is there at a time, so the queue needs no bound of its own.

    Args:
        node: this server.
        modules: the modules that handlers may come from.
        answer: takes a command's id and what went wrong, "" for nothing.
        spawn: starts a named thread.
    """

    def __init__(
        self,
        node: NodeId,
        modules: Mapping[str, ModuleFile],
        answer: Callable[[int, str], None],
        spawn: Callable[[str, Callable[[], None]], object],
    ):
        self._node = node
        self._modules = tuple(modules.values())
        self._answer = answer
        self._spawn = spawn
        self._lock = threading.Lock()
        self._known: OrderedDict[int, str | None] = OrderedDict()  # what went wrong, by id; None: not done yet
        self._waiting: deque[pb.ServerCommand] = deque()
        self._runs = False

    def take(self, command: pb.ServerCommand) -> None:
        """Run a command; one that has been run is answered as it was, and one that is being run will be."""
        with self._lock:
            known = command.id in self._known
            said = self._known.setdefault(command.id, None)
            if not known:
                self._waiting.append(command)
                if not self._runs:
                    self._runs = True
                    self._spawn("commands", self._work)
        if said is not None:
            self._answer(command.id, said)

    def _work(self) -> None:
        while (command := self._next()) is not None:
            said = self._run(command.head, command.body)
            with self._lock:
                self._known[command.id] = said
                while len(self._known) > REMEMBERED and next(iter(self._known.values())) is not None:
                    self._known.popitem(last=False)
            self._answer(command.id, said)

    def _next(self) -> pb.ServerCommand | None:
        """Return the next command; None where all are run, and the thread ends."""
        with self._lock:
            self._runs = bool(self._waiting)
            return self._waiting.popleft() if self._waiting else None

    def _run(self, head: int, body: str) -> str:
        """Run the handlers; returns what went wrong."""
        try:
            modules = [load(module) for module in self._modules]
            handlers = [module.server_command for module in modules if hasattr(module, "server_command")]
            for handler in handlers:
                handler(head, body)
        except (Exception, SystemExit) as error:
            log.exception("command %d failed", head)
            return f"command {head} failed on {self._node}: {error!r}"
        if handlers:
            return ""
        return (
            f"no handler for command {head} on {self._node}: start the job with --optimizer-module MODULE, "
            "where MODULE defines server_command(head, body)"
        )
