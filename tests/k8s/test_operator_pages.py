"""The little that the operator's HTTP pages and log lines say."""

import json

from dl2_scheduler.backends.kube.readonly_view import Onlookers
from dl2_scheduler.live.metrics import ClusterMetrics
from k8s.elastic_operator.job.model import Desired
from k8s.elastic_operator.job.status import ElasticJobStatus
from k8s.elastic_operator.metrics import OperatorMetrics
from tests.dl2_scheduler.backends.kube.test_readonly_view import View
from tests.paths import ROOT


def test_a_jobs_numbers_come_and_go_with_it():
    metrics, job = OperatorMetrics(), Desired("digits", "ns", "uid")
    metrics.job(job, ElasticJobStatus(phase="Starting", workers=1))
    metrics.job(job, ElasticJobStatus(phase="Running", workers=2, epoch=3.5))
    text = metrics.text().decode()
    assert 'dl2_job_info{job="digits",namespace="ns",phase="Running"} 1.0' in text
    assert 'phase="Starting"' not in text
    assert 'dl2_job_workers{job="digits",namespace="ns"} 2.0' in text
    metrics.forget(job)
    assert "digits" not in metrics.text().decode()


def asked():
    """What the dashboard asks of Prometheus."""
    panels = json.loads((ROOT / "k8s/chart/dashboards/dl2.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def test_the_dashboard_shows_no_fall_of_requests_where_the_operator_starts_again():
    """The slope of a number that begins at 0 again is far below 0 for minutes."""
    assert [each for each in asked() if "dl2_operator_api_calls" in each] == ["rate(dl2_operator_api_calls[5m])"]


def test_the_dashboard_draws_each_job_once():
    """The scheduler tells of some numbers by the same names, with the types of its jobs."""
    scheduler = {each.name for each in ClusterMetrics(Onlookers(View(), 0.0)).registry.collect()}
    both = scheduler & {each.name for each in OperatorMetrics().registry.collect()}
    assert both == {"dl2_job_workers", "dl2_job_servers", "dl2_job_samples_per_second"}
    assert {f'{name}{{type=""}}' for name in both} <= set(asked())
