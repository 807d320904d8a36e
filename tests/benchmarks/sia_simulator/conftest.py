import pytest

from tests.benchmarks.sia_simulator.stand_ins import artifact_in


@pytest.fixture
def artifact(tmp_path):
    return artifact_in(tmp_path)
