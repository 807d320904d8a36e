"""Policies that others have written, by the place of their code."""

import importlib
import os
import sys

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.policy import AllocationPolicy


def is_own(name: str) -> bool:
    """Whether a policy's name is MODULE:CLASS."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))


def make_own(name: str) -> AllocationPolicy:
    """A new policy of somebody's own class.

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
