"""This module says where this user's programs keep what they have to remember."""

import os
from collections.abc import Mapping
from pathlib import Path

from elastic_ps.core.errors import ConfigurationError


def state_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of this user's state: $XDG_STATE_HOME, by default ~/.local/state.

    Raises:
        ConfigurationError: nobody knows where that is, as of a container's user who has no home.
    """
    given = environment.get("XDG_STATE_HOME") or "~/.local/state"
    try:
        return Path(given).expanduser().absolute()  # scripts may change their folder
    except RuntimeError as error:
        raise ConfigurationError(
            f"no home directory is known for {given}: have XDG_STATE_HOME name a folder that you may write to, in full"
        ) from error


def jobs_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where the folders of this user's jobs are; see `state_folder`."""
    return state_folder(environment) / "elastic_ps" / "jobs"


def number_aside(folder: Path) -> int:
    """Return how many folders of a job had been moved aside when this one was: of NAME~3 that is 3, of others 0."""
    _name, mark, number = folder.name.rpartition("~")
    return int(number) if mark and number.isdecimal() else 0
