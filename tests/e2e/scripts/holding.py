"""How a test holds a training script until it has done something meanwhile."""

import os
import time


def hold(path):
    """Wait while a test has something to do before this worker goes on; FOLDER/NAME.PID says that it waits."""
    if path.exists():
        waits = path.with_name(f"{path.name}.{os.getpid()}")
        waits.touch()
        while path.exists():
            time.sleep(0.01)
        waits.unlink()
