"""A gate lets a job's workers begin their next step, and counts those that were made: numbers in shared memory."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_OPEN, _SAMPLES, _STEPS, _LAST, _FIELDS = range(5)
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class GateCount:
    """A `GateCount` is what a job has done so far.

    Attributes:
        samples: that it trained on.
        steps: that it made.
        seconds: of the monotonic clock, when its last step ended.
    """

    samples: int
    steps: int
    seconds: float


class Gates:
    """`Gates` are those of one job, in a file that its workers and who measures it map.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path):
        if not path.exists():
            path.write_bytes(bytes(8 * _FIELDS))
        self._fields = np.memmap(path, dtype=np.int64, mode="r+", shape=(_FIELDS,))

    def open(self, is_open: bool) -> None:
        """Let workers go on, or wait before their next step."""
        self._fields[_OPEN] = is_open

    def wait_until_open(self) -> None:
        """Wait, in a worker, until its next step may begin."""
        while not self._fields[_OPEN]:
            time.sleep(_POLL_SECONDS)

    def made(self, samples: int, nanoseconds: int) -> None:
        """Count a step, in the chief.

        Args:
            samples: of it.
            nanoseconds: of the monotonic clock, now.
        """
        self._fields[_LAST] = nanoseconds
        self._fields[_SAMPLES] += samples
        self._fields[_STEPS] += 1

    def read(self) -> GateCount:
        """Return what the job has done."""
        while True:
            found = self._fields.copy()
            if (found == self._fields).all():  # else a step ended meanwhile
                return GateCount(int(found[_SAMPLES]), int(found[_STEPS]), found[_LAST] / 1e9)
