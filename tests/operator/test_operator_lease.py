"""Who may take the operator's lease, and the little that its HTTP pages and log lines say."""

import pytest

from k8s.elastic_operator.__main__ import main
from k8s.elastic_operator.lease import LEAD_SECONDS, LEASE_SECONDS, Seen, may_take
from k8s.elastic_operator.metrics import Metrics
from k8s.elastic_operator.model import Desired
from k8s.elastic_operator.status import Status

ANOTHERS = Seen(("other", "12:00:00"), at=100.0)


@pytest.mark.parametrize(
    ("holder", "now", "may"),
    [
        ("", 100.0, True),
        (None, 100.0, True),
        ("me", 100.0, True),
        ("other", 100.0, False),
        ("other", 100.0 + LEASE_SECONDS - 0.1, False),
        ("other", 100.0 + LEASE_SECONDS, True),
    ],
)
def test_a_lease_is_taken_when_its_record_has_not_changed_for_its_length(holder, now, may):
    assert may_take(holder, "me", ANOTHERS, now) is may


def test_a_leader_stops_before_anybody_else_may_begin():
    assert LEAD_SECONDS < LEASE_SECONDS


def test_a_jobs_numbers_come_and_go_with_it():
    metrics, job = Metrics(), Desired("digits", "ns", "uid")
    metrics.job(job, Status(phase="Starting", workers=1))
    metrics.job(job, Status(phase="Running", workers=2, epoch=3.5))
    text = metrics.text().decode()
    assert 'dl2_job_info{job="digits",namespace="ns",phase="Running"} 1.0' in text
    assert 'phase="Starting"' not in text
    assert 'dl2_job_workers{job="digits",namespace="ns"} 2.0' in text
    metrics.forget(job)
    assert "digits" not in metrics.text().decode()


@pytest.mark.parametrize(("content", "sentence"), [(None, "cannot read --key-file"), ("short", "give at least 16")])
def test_it_does_not_start_without_a_key(tmp_path, capsys, content, sentence):
    path = tmp_path / "key"
    if content is not None:
        path.write_text(content)
    assert main(["--key-file", str(path)]) == 2
    assert sentence in capsys.readouterr().err
