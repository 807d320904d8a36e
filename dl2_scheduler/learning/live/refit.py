"""Fitting the placement policy's model of speeds anew beside the loop: its program. Torch is not imported here."""

import importlib.util
import logging
import os
import sys
from pathlib import Path

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.live.side_program import SideProgram
from dl2_scheduler.policies.learnt.placer_files import SPEEDS_FILE
from dl2_scheduler.policies.placement.registry import folder_of

log = logging.getLogger(__name__)


_KEPT = "kept, as a new fit is not surely better"
_BACK = "set back to the first one, as fits had made it worse"


class Refitter:
    """See `SlotObserver`. The policy sees by itself that its folder was written anew.

    Args:
        model: folder of the model.
        folder: of the cluster.
    """

    def __init__(self, model: Path, folder: Path):
        self._model, self._said = model, ""
        command = [sys.executable, "-m", "dl2_scheduler.learning.live.refit_program", str(model), str(folder)]
        self._side = SideProgram("refitting", command, folder / "logs" / "refitting.log")

    def before(self, slot: int) -> None:
        """See `SlotObserver.before`."""
        for said in self._side.said():
            if "trouble" in said:
                self._said = said["trouble"]
                log.error("refitting: slot %d: %s", slot, self._said)
                continue
            what = "fitted anew" if said["written"] else _BACK if said["back"] else _KEPT
            self._said = (
                f"{what} after slot {said['slot']}: a new fit is {said['error']:.1%} off {said['held_out']} placements "
                f"that nothing was fitted to, the one before {said['before']:.1%}, the first {said['first']:.1%}; "
                f"{said['rows']} placements of live slots"
            )
            log.info("refitting: %s %s", self._model, self._said)

    def after(self, slot: int) -> None:
        """See `SlotObserver.after`."""
        self._side.tell(str(slot))

    @property
    def summary(self) -> str:
        """Return how it goes, for people."""
        what = "; ".join(filter(None, (self._said, self._side.trouble)))
        return f"{self._model}: {what or 'not fitted anew yet'}"

    def close(self) -> None:
        """End its program."""
        self._side.close()


def model_to_refit(placement: str) -> Path:
    """Return the folder of the model of speeds that a placement policy has.

    Raises:
        BadInput: it has none, it cannot be written, or torch is not installed.
    """
    folder = folder_of(placement)
    if folder is None or not (folder / SPEEDS_FILE).exists():
        raise BadInput(
            f"--refit: {placement} has no model of speeds to fit anew: give local-search:MODEL or learnt:RUN"
        )
    if not os.access(folder, os.W_OK):
        raise BadInput(f"--refit: {folder} cannot be written: give a folder that can, or leave it out")
    if importlib.util.find_spec("torch") is None:
        raise BadInput("--refit needs torch, which is not installed here: install the extra learning, or leave it out")
    return folder.absolute()
