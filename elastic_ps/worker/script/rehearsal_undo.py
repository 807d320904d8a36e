"""This module lets an adapter take back what the body of the rehearsal's batch sets in its framework's objects.

The rehearsal is a batch of step 0, also in a worker that joins and in a restored job: what a script sets by the step
would stay.
"""

from collections.abc import Callable

Undo = Callable[[], None]

_noters: list[Callable[[], Undo]] = []


def offer_undo(note: Callable[[], Undo]) -> None:
    """Call `note` before the body of each rehearsal's batch, and what it returns when that is over."""
    _noters.append(note)


def note_all() -> list[Undo]:
    """Return what takes back all that the body of a rehearsal's batch, which begins now, sets."""
    return [note() for note in _noters]
