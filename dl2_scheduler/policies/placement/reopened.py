"""This module lets a running scheduler's placement policy follow what is fitted anew in its folder."""

import logging
from collections.abc import Sequence
from pathlib import Path

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.cluster.placement.task_moves import MoveTerms, TaskMove
from dl2_scheduler.policies.placement.registry import NamedPlacement, make_placement
from dl2_scheduler.policies.placement.speed_model import SpeedModel

log = logging.getLogger(__name__)

FolderState = tuple[tuple[str, int, int], ...]
"""Of each file its name, when it was written, and its size."""


class ReopenedPlacement:
    """A `ReopenedPlacement` is a policy of a folder, opened again where its files have changed; see `PlacementPolicy`.

    While the files cannot be opened, or are not all written yet, the policy is what it was.

    Args:
        name: by which people choose it.
        folder: that the name has.

    Raises:
        BadInput: there is nothing in the folder.
    """

    def __init__(self, name: str, folder: Path):
        self.name = name
        self._folder = folder
        self._opened = self._refused = _state(folder)
        self._now = make_placement(name)

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`."""
        self._look()
        return self._now.place(view)

    def explain(self, view: PlacementView, places: Places, nodes: Sequence[str]) -> dict[int, str]:
        """Return a sentence for each job that got places, by its index in the view.

        Args:
            view: that it saw.
            places: what it answered.
            nodes: their names.
        """
        return self._now.explain(view, places, nodes)

    def moves(self, view: PlacementView, terms: MoveTerms, nodes: Sequence[str]) -> tuple[TaskMove, ...]:
        """Return which running tasks would be better elsewhere; none where it knows no speeds.

        Args:
            view: of the cluster.
            terms: what may be moved.
            nodes: their names.
        """
        self._look()
        return self._now.moves(view, terms, nodes)

    @property
    def knows(self) -> SpeedModel | None:
        """Return what was fitted, None where it needs nothing."""
        return self._now.knows

    def unknown(self, models: Sequence[str]) -> list[str]:
        """Return those of some types that it was not fitted to."""
        return self._now.unknown(models)

    def _look(self) -> None:
        """Open the folder again if it is another than before."""
        state = _state(self._folder)
        if state == self._opened:
            return
        try:
            self._now = make_placement(self.name)
        except BadInput as error:
            if state != self._refused:
                log.warning("placement: %s stays as it was: %s", self.name, error)
            self._refused = state
            return
        self._opened = state
        log.info("placement: %s was fitted anew", self.name)


def following(name: str, folder: Path | None) -> "NamedPlacement | ReopenedPlacement":
    """Return a policy for a running scheduler.

    Args:
        name: by which people choose it.
        folder: that it follows; None: it needs none.

    Raises:
        BadInput: see `make_placement`.
    """
    return make_placement(name) if folder is None else ReopenedPlacement(name, folder)


def _state(folder: Path) -> FolderState:
    try:
        found = [(path.name, path.stat()) for path in sorted(folder.iterdir()) if path.suffix in (".npz", ".json")]
    except OSError:  # a file has been replaced meanwhile, or the folder is gone: the next look sees more
        return ()
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in found)
