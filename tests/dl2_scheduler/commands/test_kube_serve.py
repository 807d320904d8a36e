"""What `dl2 serve --kube` asks the API server with."""

from pathlib import Path

import pytest

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.commands.cluster.serving import kube_serve
from dl2_scheduler.commands.cluster.serving.kube_serve import KubeOrder, serve_kube
from k8s.foundation.lease import LEASE_CALL_SECONDS


def test_requests_for_the_lease_are_given_up_before_it_is_lost(monkeypatch):
    class Api:
        namespace = "ns"

        def __init__(self, context, in_cluster, call_seconds=10.0):
            self.seconds = call_seconds

    asked = []

    def lease(api, *_, **__):
        asked.append(api.seconds)
        raise BadInput("seen")

    monkeypatch.setattr(kube_serve, "KubeApi", Api)
    monkeypatch.setattr(kube_serve, "Lease", lease)
    with pytest.raises(BadInput, match="seen"):
        serve_kube(KubeOrder(30.0, None, Path(), (), None, None))
    assert asked == [LEASE_CALL_SECONDS]
