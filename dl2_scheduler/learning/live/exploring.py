"""This module is exploration beside the loop: it tells its program of slots, and keeps what that has found out last."""

import logging
import sys
from pathlib import Path

from pydantic import TypeAdapter

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.live.exploration.telling import Telling
from dl2_scheduler.live.side_program import SideProgram

log = logging.getLogger(__name__)

_TELLING = TypeAdapter(Telling)


def as_line(telling: Telling) -> str:
    """Return what was found out as a line of text."""
    return _TELLING.dump_json(telling).decode()


class ExplorationObserver:
    """An `ExplorationObserver` lets a program of its own look for configurations worth trying. See `SlotObserver`.

    Args:
        folder: the folder of the cluster.
        rule: the rule by which tasks find their node.

    Attributes:
        telling: what was found out last.
    """

    def __init__(self, folder: Path, rule: NodeRule):
        command = [sys.executable, "-m", "dl2_scheduler.learning.live.exploring_program", str(folder), str(int(rule))]
        self._side = SideProgram("exploration", command, folder / "logs" / "exploration.log")
        self._error = ""
        self.telling = Telling()

    def before(self, slot: int) -> None:
        """See `SlotObserver.before`."""
        for said in self._side.said():
            before, self._error = self._error, said.get("error", "")
            if not self._error:
                self.telling = _TELLING.validate_python(said)
            elif self._error != before:
                log.error("exploration: slot %d: %s", slot, self._error)

    def after(self, slot: int) -> None:
        """See `SlotObserver.after`."""
        self._side.tell(str(slot))

    @property
    def trouble(self) -> str:
        """The reason for which the program finds out nothing, for people; "": there is none."""
        return self._error or self._side.trouble

    def close(self) -> None:
        """End its program."""
        self._side.close()
