"""Models are small here, and a step is to have several buckets."""

import pytest


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch):
    exchange = pytest.importorskip("elastic_ps.torch.allreduce.exchange")
    monkeypatch.setattr(exchange, "BUCKET_BYTES", 64)
