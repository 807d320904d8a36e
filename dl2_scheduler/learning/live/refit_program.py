"""The refitter's program: told of slots, it fits a folder's model of speeds anew when enough placements are new.

    python -m dl2_scheduler.learning.live.refit_program MODEL FOLDER

MODEL is the folder of the model, FOLDER the cluster's. It says lines {"slot": 12, "error": 0.06, "before": 0.09,
"written": true} with counts, or {"trouble": why there is none}, and then ends. `FOLDER/refit.json` keeps up to which
slot placements have been looked at, so that a restart does not begin anew.
"""

import json
import logging
import resource
import signal
import sys
from collections import deque
from contextlib import closing
from pathlib import Path

import torch

from dl2_scheduler.cluster.errors import SchedulerError
from dl2_scheduler.cluster.hardware.measured import MeasuredPlacement, merged
from dl2_scheduler.learning.placement.refitting import LEAST_NEW, MOST_ROWS, known_rows, refitted
from dl2_scheduler.live.history import History
from dl2_scheduler.live.side_program import be_nice, told
from dl2_scheduler.policies.learnt.placer_files import SPEEDS_FILE, save_speeds
from dl2_scheduler.policies.placement.speed_model import open_speed_model
from elastic_ps.system.bounded_files import read_text
from elastic_ps.system.printable import LogLines, log_to_stderr

log = logging.getLogger(__name__)

MOST_SECONDS = 600
"""Of processor time for a fit; one that takes more ends this program, which is started again, ever less often."""
MOST_BYTES = 2 << 30
"""Of memory."""
STATE_FILE = "refit.json"
_MOST_SLOTS = 10 * MOST_ROWS
"""Of the past that are looked at when it begins."""


class LiveRefitter:
    """A `LiveRefitter` follows the history of a cluster, and fits a folder's model to it.

    Args:
        model: folder of the model.
        folder: of the cluster.
        history: of the cluster.
    """

    def __init__(self, model: Path, folder: Path, history: History):
        self._model, self._state, self._history = model, folder / STATE_FILE, history
        self._old: deque[MeasuredPlacement] = deque(maxlen=_MOST_SLOTS)
        self._new: deque[MeasuredPlacement] = deque(maxlen=_MOST_SLOTS)
        self._fitted = self._read()
        self._slot = max(-1, self._fitted - _MOST_SLOTS)

    def look(self) -> dict[str, object] | None:
        """Fit anew where enough is new; return what came of it, None where nothing was done.

        Raises:
            BadInput: the folder has no model.
        """
        for slot in self._history.slots(self._slot):
            if slot.outcome is None:  # it runs, or was cut short: it has measured nothing
                continue
            self._slot = slot.snapshot.slot
            if slot.outcome.placed is not None:
                (self._old if self._slot <= self._fitted else self._new).append(slot.outcome.placed)
        opened = self._stamp()
        known = open_speed_model(self._model)
        new = known_rows(self._new, known.models)
        if known.speeds is None or len(merged(new)) < LEAST_NEW:
            return None
        found = refitted(known, known_rows(self._old, known.models), new, seed=self._slot)
        if self._stamp() != opened:
            log.info("%s was written by others meanwhile: the next slot fits anew", self._model)
            return None
        if found.pays:
            save_speeds(self._model, known.models, found.speeds)
        self._old.extend(self._new)
        self._new.clear()
        self._fitted = self._slot
        self._write()
        numbers = {"error": found.error, "before": found.before, "held_out": found.held_out, "rows": found.rows}
        return {"slot": self._slot, "written": found.pays, **numbers}

    def _stamp(self) -> tuple[int, int]:
        """Return what becomes another when others write the model."""
        told = (self._model / SPEEDS_FILE).stat()
        return told.st_ino, told.st_mtime_ns

    def _read(self) -> int:
        try:
            told = json.loads(read_text(self._state))
            return int(told["slot"]) if told["model"] == str(self._model.resolve()) else -1
        except FileNotFoundError:
            return -1
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            log.warning("%s cannot be read, all slots are taken for new: %s", self._state, error)
            return -1

    def _write(self) -> None:
        partial = self._state.with_suffix(".partial")
        partial.write_text(json.dumps({"model": str(self._model.resolve()), "slot": self._fitted}) + "\n")
        partial.replace(self._state)


def refit(model: Path, folder: Path) -> None:
    """Fit whenever there is something to fit to, until nobody tells any more.

    Args:
        model: folder of the model.
        folder: of the scheduler, with its history.

    Raises:
        SchedulerError: it cannot.
    """
    with closing(History.of_folder(folder)) as history:
        refitter = LiveRefitter(model, folder, history)
        for _ in told():
            signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
            found = refitter.look()
            signal.setitimer(signal.ITIMER_PROF, 0)
            if found is not None:
                print(json.dumps(found), flush=True)


def main() -> None:
    """See the module."""
    be_nice()
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    log_to_stderr(LogLines())
    model, folder = sys.argv[1:]
    try:
        refit(Path(model), Path(folder))
    except (SchedulerError, OSError, MemoryError, RuntimeError) as error:
        log.exception("nothing is fitted")
        print(json.dumps({"trouble": str(error)}), flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
