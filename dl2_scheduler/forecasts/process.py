"""This module is the forecaster beside the loop: it tells its program of slots, and keeps what that has said last."""

import logging
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from dl2_scheduler.cluster.forecast import Forecast
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.snapshot import JobId
from dl2_scheduler.forecasts.forecaster import SlotForecasts, of_message
from dl2_scheduler.live.side_program import SideProgram

log = logging.getLogger(__name__)

_VALID_SLOTS = 5
"""After which a forecast is shown no more: the cluster has changed since."""


class ForecastObserver:
    """A `ForecastObserver` lets a program of its own forecast, slot by slot. See `SlotObserver`.

    Args:
        folder: the folder of the cluster.
        rule: the rule by which tasks find their node.
        tell: is told of forecasts, once a slot, from when some are made; it must not take long. Those of before a
            restart hold until then, or until they would be too old.
    """

    def __init__(
        self, folder: Path, rule: NodeRule, tell: Callable[[Mapping[JobId, Forecast]], None] = lambda forecasts: None
    ):
        command = [sys.executable, "-m", "dl2_scheduler.forecasts.program", str(folder), str(int(rule))]
        self._side = SideProgram("the forecaster", command, folder / "logs" / "forecasts.log")
        self._tell = tell
        self._last = SlotForecasts(0, {})
        self._slot, self._error = 0, ""
        self._first: int | None = None  # slot since this process began
        self._knows = False  # whether forecasts were made since
        self._lock = threading.Lock()

    def before(self, slot: int) -> None:
        """See `SlotObserver.before`."""
        self._slot = slot
        self._first = slot if self._first is None else self._first
        found = self.forecasts
        if self._knows or slot - self._first > _VALID_SLOTS:
            self._tell(found)

    def after(self, slot: int) -> None:
        """See `SlotObserver.after`."""
        self._side.tell(str(slot))

    @property
    def forecasts(self) -> Mapping[JobId, Forecast]:
        """The forecasts that were made last, by job; none where that was too long ago."""
        self._hear()
        return self._last.by_job if self._slot - self._last.slot <= _VALID_SLOTS else {}

    def close(self) -> None:
        """End its program."""
        self._side.close()

    def _hear(self) -> None:
        with self._lock:
            for said in self._side.said():
                before, self._error = self._error, said.get("error", "")
                if not self._error:
                    with suppress(ValueError):  # people who ask for jobs are answered all the same
                        self._last, self._knows = of_message(said), True
                elif self._error != before:
                    log.error("forecasts: %s", self._error)
