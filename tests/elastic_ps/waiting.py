"""How tests wait for what nobody is notified of."""

import time
from collections.abc import Callable
from typing import Any

TIMEOUT = 20.0


def until(ready: Callable[[], Any]) -> None:
    """Wait until `ready` is true."""
    deadline = time.monotonic() + TIMEOUT
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.01)
