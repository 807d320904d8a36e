"""Optimizers that servers cannot run, in real jobs: refused to every worker, or a clear end; no server dies of one."""

import pytest

from tests.e2e import jobs

SCRIPT = jobs.SCRIPTS / "own_rule.py"
MODULE = "failing_rules"


def job(tmp_path, rule, **numbers):
    return jobs.run(tmp_path, SCRIPT, tmp_path, rule, options=("--optimizer-module", MODULE), **numbers)


@pytest.fixture(autouse=True)
def module(monkeypatch):
    """Servers find the rules."""
    monkeypatch.setenv("PYTHONPATH", str(jobs.SCRIPTS))


@pytest.mark.mxnet
@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("no_such_rules:Mine", "start it with --optimizer-module no_such_rules"),
        (f"{MODULE}:RaisesWhenMade", "cannot be made: ValueError('no luck today')"),
    ],
)
def test_every_worker_is_refused_and_the_job_trains_with_another(tmp_path, rule, why):
    with job(tmp_path, rule, workers=2, servers=2) as running:
        assert running.wait() == 0, running.tail()
        assert "Traceback" not in running.tail()
    for rank in range(2):
        assert why in (tmp_path / f"refused-{rank}").read_text()
        assert (tmp_path / f"value-{rank}").read_text() == str([18.0] * 4)


@pytest.mark.mxnet
def test_a_rule_that_fails_while_training_ends_the_job_with_its_reason(tmp_path):
    with job(tmp_path, f"{MODULE}:RaisesInTheSecondUpdate", workers=2, servers=1) as running:
        assert running.wait() == 1
        reason = f"optimizer '{MODULE}:RaisesInTheSecondUpdate' fails in update 2: ArithmeticError('no luck today')"
        assert f"s0 cannot go on: {reason}" in running.tail()
        assert "thread" not in running.tail()
    assert not list(tmp_path.glob("value-*"))
