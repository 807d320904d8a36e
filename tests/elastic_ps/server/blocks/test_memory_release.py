"""How memory goes back to the system."""

import mmap
import os

from elastic_ps.server.blocks.memory_release import UnusedMemory
from elastic_ps.transport.shared_memory import Image


def test_memory_goes_back_in_pieces_of_whole_pages() -> None:
    image, size, page = Image(5 << 20), 5 << 20, mmap.PAGESIZE
    image.array[:] = 1
    unused = UnusedMemory()
    unused.add(image, 100, size - 100)
    pieces = 0
    while unused:
        unused.next_piece()
        pieces += 1
    assert pieces == 5
    assert os.fstat(image.descriptor).st_blocks * 512 == 2 * page
    assert image.array.nonzero()[0].tolist() == [*range(100), *range(size - 100, size)]
