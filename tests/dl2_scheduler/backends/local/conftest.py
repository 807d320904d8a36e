import pytest

from tests.dl2_scheduler.backends.local.launches import elasticrun_runtime


@pytest.fixture
def runtime(tmp_path):
    """The runtime of a cluster whose folder is the test's."""
    return elasticrun_runtime(tmp_path)
