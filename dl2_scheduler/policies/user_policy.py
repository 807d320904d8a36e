"""Policies that others have written, by the place of their code."""

import importlib
import logging
import os
import sys
import traceback
from typing import Any

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.hardware.view import PlacementView, Places, check_placement
from dl2_scheduler.cluster.interfaces import AllocationPolicy, PlacementPolicy
from dl2_scheduler.cluster.placement.answer_checks import UnfitAnswer, check
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot

log = logging.getLogger(__name__)


def is_own(name: str) -> bool:
    """Return whether a policy's name is MODULE:CLASS."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))


def make_own(name: str) -> AllocationPolicy:
    """Return a new policy of a user's own class.

    Args:
        name: MODULE:CLASS. The module is looked for in the present folder too, as `python -m` does; the class, or
            function, is called without arguments.

    Raises:
        BadInput: there is none, it cannot be made, or what is made is no policy.
    """
    policy = _made(name)
    if not callable(getattr(policy, "allocate", None)):
        raise BadInput(f"policy {name} makes a {type(policy).__name__}, which has no allocate(snapshot, room)")
    found: AllocationPolicy = policy
    return found


def make_own_placement(name: str) -> PlacementPolicy:
    """Return a new placement policy of a user's own class.

    Args:
        name: see `make_own`.

    Raises:
        BadInput: there is none, it cannot be made, or what is made is no placement policy.
    """
    policy = _made(name)
    if not callable(getattr(policy, "place", None)):
        raise BadInput(f"policy {name} makes a {type(policy).__name__}, which has no place(view)")
    found: PlacementPolicy = policy
    return found


def _made(name: str) -> Any:
    """Return what the code at MODULE:CLASS makes. Raises BadInput."""
    module, _, attribute = name.partition(":")
    log.info("%s is imported, and made", name)  # nothing bounds how long that takes, so it is said who is waited for
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), attribute)()
    except (Exception, SystemExit) as error:
        raise BadInput(f"policy {name} cannot be made: {type(error).__name__}: {error}") from error


class Simulated:
    """See `AllocationPolicy`: somebody's own policy in a simulation, which ends by what is wrong with its answer.

    Args:
        name: of the policy.
        policy: that is asked.
    """

    def __init__(self, name: str, policy: AllocationPolicy):
        self._name, self._policy = name, policy

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """See `AllocationPolicy.allocate`.

        Raises:
            BadInput: the policy raised, or answered what cannot be done.
        """
        try:
            found = self._policy.allocate(snapshot, room)
            check(snapshot, found, room)
        except UnfitAnswer as error:
            raise BadInput(f"policy {self._name}, slot {snapshot.slot}: {error}") from error
        except (Exception, SystemExit) as error:
            raise BadInput(f"policy {self._name}, slot {snapshot.slot}: {_raised(error)}") from error
        return found


class SimulatedPlacement:
    """See `PlacementPolicy`: one that is asked in a simulation, which ends by what is wrong with its answer.

    Args:
        name: of the policy.
        policy: that is asked.
    """

    def __init__(self, name: str, policy: PlacementPolicy):
        self._name, self._policy = name, policy

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`.

        Raises:
            BadInput: the policy raised, or answered what cannot be done.
        """
        try:
            found = self._policy.place(view.copied())
            check_placement(view, found)
        except BadInput as error:
            raise BadInput(f"placement {self._name}, after {view.now:g} s: {error}") from error
        except (Exception, SystemExit) as error:
            raise BadInput(f"placement {self._name}, after {view.now:g} s: {_raised(error)}") from error
        return found


def _raised(error: BaseException) -> str:
    """Return what somebody's code raised, and where, for people."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"it raised {type(error).__name__}: {error} ({at.filename}, line {at.lineno})"
