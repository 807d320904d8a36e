"""What a program beside the loop says, waited for."""

import threading
from collections import deque

from dl2_scheduler.live.side_program import SideProgram

SECONDS = 400.0
"""Programs beside the loop are niced: beside other tests they get little of a core."""


class Heard(deque[str]):
    """Tells of each line."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = threading.Semaphore(0)

    def append(self, line: str) -> None:
        super().append(line)
        self._lines.release()

    def wait(self, lines: int = 1) -> None:
        """Until there are so many more. Lines that were taken before they were waited for count as well."""
        for _ in range(lines):
            assert self._lines.acquire(timeout=SECONDS), "it says nothing"


def listen(side: SideProgram) -> Heard:
    """To a program that has not been told anything yet."""
    side._heard = heard = Heard()
    return heard


def kill(side: SideProgram) -> None:
    """A program; what it said before has been heard."""
    process = side._process
    assert process is not None
    process.kill()
    process.wait()
    for thread in threading.enumerate():
        if thread.name == f"hears {side._name}":
            thread.join(SECONDS)


def made(policies):
    """Wait until the planner is made, if it is being made; return the name of who decides then."""
    if (maker := policies._maker) is not None:
        maker.join()
    return policies.deciding
