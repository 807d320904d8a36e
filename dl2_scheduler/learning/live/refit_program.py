"""The refitter's program: told of slots, it fits a folder's model of speeds anew when enough placements are new.

    python -m dl2_scheduler.learning.live.refit_program MODEL FOLDER

MODEL is the folder of the model, FOLDER the cluster's. It says lines {"slot": 12, "error": 0.06, "before": 0.09,
"written": true} with more numbers, or {"trouble": why there is none}, and then ends. `FOLDER/refit.json` keeps up to
which slot placements have been looked at, so that a restart does not begin anew, and `FOLDER/refit-first/` the model
from which refitting began: the last that somebody else wrote.
"""

import hashlib
import json
import logging
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import torch

from dl2_scheduler.cluster.errors import BadInput, SchedulerError
from dl2_scheduler.cluster.hardware.measured import MeasuredPlacement, merged
from dl2_scheduler.learning.live.slot_placements import SlotPlacements
from dl2_scheduler.learning.placement.refitting import (
    LEAST_HELD_OUT,
    LEAST_NEW,
    MOST_ROWS,
    Refit,
    is_held_out,
    refitted,
)
from dl2_scheduler.live.history import History
from dl2_scheduler.live.side_program import be_nice, told
from dl2_scheduler.policies.learnt.placer_files import SPEEDS_FILE, open_speeds, save_speeds
from dl2_scheduler.policies.learnt.pooled_speed import PooledSpeed
from dl2_scheduler.policies.placement.speed_model import SpeedModel, open_speed_model
from elastic_ps.system.bounded_files import read_text
from elastic_ps.system.printable import LogLines, log_to_stderr

log = logging.getLogger(__name__)

MOST_SECONDS = 600
"""Of processor time for a fit; one that takes more ends this program, which is started again, ever less often."""
MOST_BYTES = 2 << 30
"""Of memory."""
STATE_FILE, FIRST_FOLDER = "refit.json", "refit-first"
_MOST_SLOTS = 10 * MOST_ROWS
"""Of the past that are looked at when it begins, with jobs: a fit has to be made in the same time."""


class LiveRefitter:
    """A `LiveRefitter` follows the history of a cluster, and fits a folder's model to it.

    Args:
        model: folder of the model.
        folder: of the cluster.
        history: of the cluster.
    """

    def __init__(self, model: Path, folder: Path, history: History):
        self._model, self._folder, self._state, self._history = model, folder, folder / STATE_FILE, history
        self._old, self._new = SlotPlacements(2 * MOST_ROWS), SlotPlacements(2 * MOST_ROWS)
        self._fitted, self._written = self._read()
        if self._fitted >= history.next_slot:  # the history was deleted, and numbers have begun again
            self._fitted = -1
        self._slot = max(self._fitted - _MOST_SLOTS, history.slot_before(_MOST_SLOTS))

    def look(self) -> dict[str, object] | None:
        """Fit anew where enough is new; return what came of it, None where nothing was done.

        Raises:
            BadInput: the folder has no model, or cannot be written.
        """
        for slot in self._history.slots(self._slot):
            if slot.outcome is None:  # it runs, or was cut short: it has measured nothing
                continue
            self._slot = slot.snapshot.slot
            if slot.outcome.placed is not None:
                (self._old if self._slot <= self._fitted else self._new).add(slot.outcome.placed)
        known = open_speed_model(self._model)
        new = self._new.keys(known.models)
        if known.speeds is None or len(new) < LEAST_NEW:
            return None
        keys = new | self._old.keys(known.models)
        if not LEAST_HELD_OUT <= sum(map(is_held_out, keys)) <= len(keys) - LEAST_HELD_OUT:
            return None
        measured = [*self._old.rows(known.models), *self._new.rows(known.models)]
        return self._refit(known, known.speeds, merged(measured))

    def _refit(
        self, known: SpeedModel, present: PooledSpeed, measured: Sequence[MeasuredPlacement]
    ) -> dict[str, object] | None:
        opened = self._digest()
        check_room(self._model, (self._model / SPEEDS_FILE).stat().st_size)
        first = self._first(known, present, opened)
        found = refitted(known, first, measured, seed=self._slot)
        if self._digest() != opened:
            log.info("%s was written by others meanwhile: the next slot fits anew", self._model)
            return None
        if found.pays or found.goes_back:
            save_speeds(self._model, known.models, found.speeds if found.pays else first)
            self._written = self._digest()
        self._old.take(self._new)
        self._fitted = self._slot
        self._write()
        return {"slot": self._slot, **told_of(found)}

    def _first(self, known: SpeedModel, present: PooledSpeed, opened: str) -> PooledSpeed:
        """Return the model from which refitting began: the present one, if somebody else wrote it."""
        folder = self._folder / FIRST_FOLDER
        if opened == self._written:
            try:
                models, first = open_speeds(folder)
                if models == known.models:
                    return first
            except BadInput as error:
                log.warning("the first model is not there any more, the present one takes its place: %s", error)
        folder.mkdir(exist_ok=True)
        save_speeds(folder, known.models, present)
        self._written = opened
        self._write()
        return present

    def _digest(self) -> str:
        """Return what becomes another when others write the model."""
        return hashlib.sha256((self._model / SPEEDS_FILE).read_bytes()).hexdigest()

    def _read(self) -> tuple[int, str]:
        """Return the last slot that was looked at, and the digest of the model as this program left it."""
        try:
            told = json.loads(read_text(self._state))
            if told["model"] == str(self._model.resolve()):
                return int(told["slot"]), str(told.get("written", ""))
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            log.warning("%s cannot be read, all slots are taken for new: %s", self._state, error)
        return -1, ""

    def _write(self) -> None:
        partial = self._state.with_suffix(".partial")
        told = {"model": str(self._model.resolve()), "slot": self._fitted, "written": self._written}
        partial.write_text(json.dumps(told) + "\n")
        partial.replace(self._state)


def told_of(found: Refit) -> dict[str, object]:
    """Return what is said of a fit, in JSON."""
    errors = {"error": found.errors, "before": found.before, "first": found.first}
    means = {name: float(each.mean()) for name, each in errors.items()}
    counts = {"held_out": len(found.errors), "rows": found.rows}
    return {"written": found.pays, "back": found.goes_back, **means, **counts}


def check_room(folder: Path, size: int) -> None:
    """Refuse a folder into which a file of so many bytes cannot be written: a fit for nothing takes minutes.

    Raises:
        BadInput: it cannot, with why.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(size))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise BadInput(f"{folder} cannot take a new model of {size} bytes, so that none is fitted: {error}") from error


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
