"""This module starts programs of ours by Python, in folders of others."""

import os
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]


def own_program(module: str, folder: Path | None = None) -> list[str]:
    """Return the argv that runs a module of ours, in whose imports the folder that it starts in does not come first.

    A `protos` or a `coordinator.py` beside somebody's script would be imported in the place of ours. Where the folder
    is that of our sources it does, as nothing else may say where they are.

    Args:
        module: as `python -m` takes it.
        folder: that it starts in; None: that of this process, which may be gone by now.

    Raises:
        OSError: there is no such folder.
    """
    try:
        ours = os.path.samefile(folder or ".", _ROOT)
    except OSError:
        if folder is not None:
            raise
        ours = False
    return [sys.executable, *([] if ours else ["-P"]), "-m", module]
