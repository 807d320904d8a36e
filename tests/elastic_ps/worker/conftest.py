from collections.abc import Iterator

import pytest

from tests.elastic_ps.worker.job_play import JobPlay
from tests.elastic_ps.worker.worker_harness import Play


@pytest.fixture
def play() -> Iterator[Play]:
    """A worker w0 and two servers."""
    made = Play()
    yield made
    made.close()


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[JobPlay]:
    """The same with a whole job, for a script."""
    made = JobPlay(monkeypatch)
    yield made
    made.close()
