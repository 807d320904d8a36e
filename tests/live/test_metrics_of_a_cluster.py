"""What Prometheus is told of a cluster."""

import socket
import urllib.request
from pathlib import Path

import pytest
from played_cluster import document
from prometheus_client.parser import text_string_to_metric_families

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from dl2_scheduler.live.metrics import Metrics, exported


def scraped(where):
    """Values by name and labels."""
    with urllib.request.urlopen(f"http://{where}/metrics", timeout=20) as reply:
        text = reply.read().decode()
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_jobs_nodes_and_decisions_are_told(serve, runtime):
    cluster = serve()
    metrics = Metrics(cluster)
    watched = metrics.watching(cluster)
    for name in ("a", "b"):
        cluster.submit(document(name), Path())
    for grants in ({"a": Grant(2, 1)}, {"a": Grant(3, 1)}):
        watched.snapshot()
        watched.apply(Allocation(grants))
        watched.finish_slot()
    runtime.end("a", 1, "no data")
    with exported(metrics, "0") as where:
        assert where.startswith("127.0.0.1:")
        now = scraped(where)
        assert now["dl2_slot",] == 1
        assert now["dl2_decision_seconds_count",] == 2
        assert (now["dl2_jobs", "running"], now["dl2_jobs", "waiting"], now["dl2_failures",]) == (1, 1, 0)
        assert (now["dl2_job_workers", "a", "digits"], now["dl2_job_servers", "a", "digits"]) == (3, 1)
        assert (now["dl2_job_epochs", "a", "digits"], now["dl2_job_samples_per_second", "b", "digits"]) == (4, 0)
        assert (now["dl2_node_capacity", "node-0", "slots"], now["dl2_node_used", "node-0", "slots"]) == (8, 2)
        watched.snapshot()  # notices the end of a
        later = scraped(where)
        assert (later["dl2_jobs", "failed"], later["dl2_failures",]) == (1, 1)
        assert ("dl2_job_workers", "a", "digits") not in later
    assert not watched.done


def test_a_port_that_somebody_has_is_refused(serve):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        metrics = Metrics(serve())
        for where in (str(taken.getsockname()[1]), "nine", "1:2:3", "99999"):
            with pytest.raises(BadInput, match=f"--metrics {where}: .*; give PORT"), exported(metrics, where):
                pass
