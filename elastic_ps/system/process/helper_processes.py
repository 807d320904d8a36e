"""This module tells a script's own process from those that multiprocessing has started for it."""

import multiprocessing


def is_helper_process() -> bool:
    """Return whether multiprocessing has started this process, to load data for a script, say.

    Such a process imports the script's file before it knows its parent: only this mark says so then, by which
    multiprocessing itself refuses to start others.
    """
    process = multiprocessing.current_process()
    return multiprocessing.parent_process() is not None or bool(getattr(process, "_inheriting", False))
