"""This module finds modules of users without importing them, and imports them as they were found."""

import hashlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.module_file import ModuleFile


def find(name: str) -> ModuleSpec | None:
    """Return where `python -m` here would find a module, the working directory first. No package is imported."""
    first, *rest = name.split(".")
    try:
        spec = PathFinder.find_spec(first, [""]) or importlib.util.find_spec(first)
        for part in rest:
            if spec is None:
                break
            where: Sequence[str] = spec.submodule_search_locations or ()
            spec = PathFinder.find_spec(part, where)  # under its whole name a namespace would ask for its parent
    except (ImportError, ValueError):
        return None
    return spec


_OURS = {"elastic_ps": "launch/checks.py", "protos": "elastic_pb2.py"}
"""Our packages that workers import, each with a file of it by which it is known."""


def hiding_ours(folder: str) -> str | None:
    """Return what a script would import in the place of a package of ours; None: it imports ours.

    Args:
        folder: where it looks for modules first; "": the working directory.
    """
    others = sys.path[0 if sys.flags.safe_path else 1 :]  # the first is where this program looked
    for name, known in _OURS.items():
        spec = PathFinder.find_spec(name, [folder, *others])
        for place in [] if spec is None else spec.submodule_search_locations or [str(spec.origin)]:
            if not os.path.isfile(os.path.join(place, known)):
                return place
    return None


def module_file(name: str) -> ModuleFile:
    """Return a module as it is on the disk now."""
    spec = find(name)
    path = Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None
    try:
        return ModuleFile(name, str(path), hashlib.sha256(path.read_bytes()).hexdigest()) if path else ModuleFile(name)
    except OSError:
        return ModuleFile(name)


def load(found: ModuleFile) -> ModuleType:
    """Import a module as it was found.

    Raises:
        ConfigurationError: its file has changed since.
        Exception: whatever the module raises.
    """
    if found.digest and found.name not in sys.modules and module_file(found.name).digest != found.digest:
        raise ConfigurationError(f"{found.path} has changed since this server was started")
    if sys.flags.safe_path and "" not in sys.path:
        sys.path.insert(0, "")  # where `find` looks first; ours are imported by now
    return import_module(found.name)
