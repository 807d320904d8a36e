"""The little that the operator's HTTP pages and log lines say."""

import json

from k8s.elastic_operator.job.model import Desired
from k8s.elastic_operator.job.status import ElasticJobStatus
from k8s.elastic_operator.metrics import OperatorMetrics
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


def test_the_dashboard_shows_no_fall_of_requests_where_the_operator_starts_again():
    """The slope of a number that begins at 0 again is far below 0 for minutes."""
    panels = json.loads((ROOT / "k8s/chart/dashboards/dl2.json").read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    assert [each for each in asked if "dl2_operator_api_calls" in each] == ["rate(dl2_operator_api_calls[5m])"]
