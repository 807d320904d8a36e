"""Policies that others have written, by the place of their code."""

import importlib
import os
import sys
import traceback

from dl2_scheduler.cluster.answer_checks import UnfitAnswer, check
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.snapshot import Allocation, Snapshot


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
    module, _, attribute = name.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        make = getattr(importlib.import_module(module), attribute)
        policy = make()
    except (Exception, SystemExit) as error:
        raise BadInput(f"policy {name} cannot be made: {type(error).__name__}: {error}") from error
    if not callable(getattr(policy, "allocate", None)):
        raise BadInput(f"policy {name} makes a {type(policy).__name__}, which has no allocate(snapshot, room)")
    found: AllocationPolicy = policy
    return found


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
            at = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{at.filename}, line {at.lineno}"
            raise BadInput(
                f"policy {self._name}, slot {snapshot.slot}: it raised {type(error).__name__}: {error} ({where})"
            ) from error
        return found
