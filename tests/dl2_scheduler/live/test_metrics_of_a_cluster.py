"""What Prometheus is told of a cluster."""

import logging
import socket
import urllib.request
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from dl2_scheduler.commands.cluster.serving.driving import Driving, driven
from dl2_scheduler.commands.cluster.serving.kube_health import Health, answering
from dl2_scheduler.live.client import ClusterClient
from dl2_scheduler.live.history import HISTORY_FILE, History
from dl2_scheduler.live.metrics import ClusterMetrics, exported
from tests.dl2_scheduler.played_cluster import document


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
    metrics = ClusterMetrics(cluster.desk)
    watched = metrics.watching(cluster)
    for name in ("a", "b"):
        cluster.desk.submit(document(name), Path())
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


@pytest.fixture(params=["--metrics", "--probes"])
def page(request, serve):
    """An option that opens a page, and what opens it."""
    if request.param == "--metrics":
        return request.param, partial(exported, ClusterMetrics(serve().desk))
    return request.param, partial(answering, Health(30.0, lambda: ""))


def test_where_no_page_can_be_is_said_in_the_same_words(page):
    option, opened = page
    hint = "give PORT or ADDRESS:PORT, port 0 for a free one"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for where, why in (
            (str(port), "[Errno 98] Address already in use"),
            (f"127.0.0.1:{port}", "[Errno 98] Address already in use"),
            ("nine", "'nine' is no port, a number up to 65535"),
            ("127.0.0.1:", "'' is no port, a number up to 65535"),
            ("99999", "'99999' is no port, a number up to 65535"),
            ("-1", "'-1' is no port, a number up to 65535"),
        ):
            with pytest.raises(BadInput) as refused, opened(where):
                pass
            assert str(refused.value) == f"{option} {where}: {why}; {hint}"
    with pytest.raises(BadInput, match=f"{option} 1:2:3: .*; {hint}"), opened("1:2:3"):
        pass


def test_sharing_is_told_where_something_is_shared(serve, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    cluster, shared = serve(), tmp_path / "shared"
    driving = Driving(None, guard=None, learn=True, metrics="0", share_with=shared)
    with (
        closing(History(tmp_path / HISTORY_FILE)) as history,
        driven(cluster, cluster.desk, history, tmp_path, driving),
        ClusterClient(tmp_path) as client,
    ):
        (told,) = [each.getMessage() for each in caplog.records if "metrics: http" in each.getMessage()]
        found = scraped(told.removeprefix("metrics: http://").removesuffix("/metrics"))
        assert {name: value for (name, *_), value in found.items() if name.startswith("dl2_sharing")} == dict.fromkeys(
            [f"dl2_sharing_{what}" for what in ("clusters", "speeds", "ignored_files", "tried", "accepted")], 0.0
        )
        assert client.policies().sharing == f"{shared}: nothing was shared yet"


def test_where_metrics_are_is_told_as_everything_else_is(serve, tmp_path, caplog, capsys):
    caplog.set_level(logging.INFO)
    cluster = serve()
    with (
        closing(History(tmp_path / HISTORY_FILE)) as history,
        driven(cluster, cluster.desk, history, tmp_path, Driving("drf", guard=None, metrics="0")),
    ):
        (told,) = [record.getMessage() for record in caplog.records if record.name.endswith("driving")]
        assert scraped(told.removeprefix("metrics: http://").removesuffix("/metrics"))
    assert capsys.readouterr().out == ""
