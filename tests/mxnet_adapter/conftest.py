import pytest
from fake_store import FakeStore

from elastic_ps.mxnet import ElasticKVStore


@pytest.fixture
def fake() -> FakeStore:
    """The worker side of `kv`."""
    return FakeStore()


@pytest.fixture
def kv(fake: FakeStore) -> ElasticKVStore:
    """A kvstore that exchanges at each push."""
    return ElasticKVStore(fake)
