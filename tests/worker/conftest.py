from collections.abc import Iterator

import pytest
from worker_harness import Play


@pytest.fixture
def play() -> Iterator[Play]:
    """A worker w0 and two servers."""
    made = Play()
    yield made
    made.close()
