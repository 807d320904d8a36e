"""A pod that is deleted where its node is away is given up; where that only is not ready, it may still be drained."""

import asyncio

import pytest

from k8s.elastic_operator.api_writes import OperatorApi
from k8s.elastic_operator.job.model import Desired
from k8s.elastic_operator.job_loop import Keeper
from tests.k8s.played_api import document, keepers
from tests.k8s.test_operator_watch import coordinator


class Nodes:
    """Answers for one node, of which Kubernetes says this."""

    def __init__(self, status):
        self.found = {"status": {"conditions": [{"type": "Ready", "status": status}]}}

    def get(self, path, query=None):
        assert path == "/api/v1/nodes/node-1"
        return self.found


@pytest.mark.parametrize("until", ["2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z"])
@pytest.mark.parametrize("status", ["True", "False", "Unknown"])
def test_a_pod_that_is_deleted_in_order_is_lost_where_nobody_will_end_it(status, until):
    ending = coordinator("7", phase="Running")
    ending["metadata"] |= {"deletionTimestamp": until}  # the end of its grace
    ending["spec"] = {"nodeName": "node-1"}

    async def scene():
        api = OperatorApi(Nodes(status), lambda: True)
        keeper = Keeper(keepers(api, asyncio.Event())._shared, document())
        keeper.pod_changed(ending, gone=False)
        (pod,) = (await keeper._observe(Desired.of(document()))).pods
        await keeper._close()
        await api.close()
        return pod.lost

    late = until.startswith("2020")
    assert asyncio.run(scene()) is (status == "Unknown" or (status == "False" and late))
