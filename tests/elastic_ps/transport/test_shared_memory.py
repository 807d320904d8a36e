"""Memory that grows while threads use it."""

import mmap
import os
import threading
from types import SimpleNamespace

from elastic_ps.transport import shared_memory as module
from elastic_ps.transport.shared_memory import Image


def test_threads_that_follow_at_once_map_it_once(monkeypatch):
    """The later map would take away the memory that the first one's array showed."""
    made, image = [], Image(100)
    there = Image.attached(os.dup(image.descriptor), writable=True)
    image.grow(5000)
    other = threading.Thread(target=there.follow, daemon=True)

    def mapped(*arguments, **options):
        made.append(threading.current_thread())
        if len(made) == 1:
            other.start()
            other.join(0.2)  # it ends in this time where nothing keeps it
        return mmap.mmap(*arguments, **options)

    monkeypatch.setattr(module, "mmap", SimpleNamespace(mmap=mapped))
    there.follow()
    found = there.array
    other.join(10)
    assert not other.is_alive()
    assert made == [threading.current_thread()]
    assert there.array is found
    assert found.nbytes == 5000
