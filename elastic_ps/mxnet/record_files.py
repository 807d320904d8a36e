"""This module lets several threads read one record file, as the loader's do.

MXNet's `read_idx` seeks and then reads through a handle that the file's readers share, so that one thread gets the
record of another, or half of two.
"""

import os
import threading
from functools import wraps
from typing import Any

import mxnet as mx

_reading = threading.Lock()


def lock_reads() -> None:
    """Wrap `MXIndexedRecordIO.read_idx`, by which RecordFileDataset, ImageRecordDataset and others read."""
    read = mx.recordio.MXIndexedRecordIO.read_idx

    @wraps(read)
    def read_idx(record: Any, idx: Any) -> Any:
        with _reading:
            return read(record, idx)

    mx.recordio.MXIndexedRecordIO.read_idx = read_idx
    os.register_at_fork(after_in_child=_renew)


def _renew() -> None:
    """Make a free lock: the thread that held it is not in this process."""
    global _reading
    _reading = threading.Lock()
