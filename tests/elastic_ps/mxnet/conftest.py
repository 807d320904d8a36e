import pytest

from elastic_ps.mxnet import ElasticKVStore
from tests.elastic_ps.mxnet.fake_store import FakeStore


@pytest.fixture
def fake() -> FakeStore:
    """The worker side of `kv`."""
    return FakeStore()


@pytest.fixture
def kv(fake: FakeStore) -> ElasticKVStore:
    """A kvstore that exchanges at each push."""
    return ElasticKVStore(fake)
