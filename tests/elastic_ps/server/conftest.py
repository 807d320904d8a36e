from collections.abc import Iterator

import pytest

from tests.elastic_ps.server.server_harness import Jobs


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()
