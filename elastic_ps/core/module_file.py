"""This module names the file that a server loads update rules from, and what was in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class ModuleFile:
    """A `ModuleFile` is a module as it lies on the disk. What it imports itself is not in it.

    Attributes:
        name: dotted.
        path: of its file, for people; "": it has none.
        digest: SHA-256 of that file, in hex; "": it has none.
    """

    name: str
    path: str = ""
    digest: str = ""


NO_MODULES: Mapping[str, ModuleFile] = MappingProxyType({})
"""These are the modules of a server that may load none, by name."""
