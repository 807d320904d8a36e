"""The operator's program, as it is put together."""

import asyncio
import json
import threading

import pytest

from elastic_ps.core.errors import ConfigurationError
from k8s.elastic_operator import __main__ as program
from k8s.elastic_operator.job.actions import StartCoordinator
from k8s.elastic_operator.job.manifests import COORDINATOR_RESOURCES, Defaults, coordinator_pod
from k8s.elastic_operator.job.model import Counts
from k8s.foundation.api_server import ApiUnavailable, Rejected
from tests.k8s.operator_cases import job

SECONDS = 5.0
KEY = b"0123456789abcdef"


class Enough(Exception):
    """The test has seen all."""


def test_coordinators_that_stand_still_keep_no_other_job_waiting(monkeypatch):
    """A node's disk that hangs stops all coordinators there: each call to one of them lasts as long as a call may."""
    stuck = threading.Event()

    async def ask(_lease):
        calls = [asyncio.create_task(asyncio.to_thread(stuck.wait, 2 * SECONDS)) for _ in range(100)]
        await asyncio.sleep(0)
        try:
            await asyncio.wait_for(asyncio.to_thread(lambda: None), SECONDS)
        finally:
            stuck.set()
            await asyncio.gather(*calls)
        raise Enough

    monkeypatch.setattr(program, "KubeApi", lambda **_: None)
    monkeypatch.setattr(program, "operator_key", lambda *_, **__: KEY)
    monkeypatch.setattr(program, "_acquired", ask)
    with pytest.raises(Enough):
        asyncio.run(program._serve(program._parser().parse_args(["--port", "0"])))


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (ApiUnavailable("the API server does not answer: timed out"), 1, "it cannot begin: the API server does not"),
        (Rejected('secrets "dl2-operator-key" is forbidden', 403), 1, 'it cannot begin: secrets "dl2-operator-key" is'),
        (ConfigurationError("there is no secret k in ns"), 2, "there is no secret k in ns"),
    ],
)
def test_why_it_cannot_begin_is_said_in_a_line(monkeypatch, capsys, error, status, words):
    def key(*_, **__):
        raise error

    monkeypatch.setattr(program, "_log_as_json", lambda: None)
    monkeypatch.setattr(program, "KubeApi", lambda **_: None)
    monkeypatch.setattr(program, "operator_key", key)
    assert program.main(["--port", "0"]) == status
    assert capsys.readouterr().err.startswith(f"operator: {words}")


def test_coordinators_take_what_the_chart_says_or_the_usual(capsys):
    """Where a quota counts limits no pod is made without: those of workers and servers are in their templates."""
    parse = program._parser().parse_args
    assert parse([]).coordinator_resources == COORDINATOR_RESOURCES
    limited = {"requests": {"cpu": "1"}, "limits": {"cpu": 1, "memory": "1Gi"}}
    given = parse(["--coordinator-resources", json.dumps(limited)]).coordinator_resources
    pod = coordinator_pod(job(), StartCoordinator(1, Counts(1, 1)), Defaults(coordinator_resources=given))
    assert pod["spec"]["containers"][0]["resources"] == limited
    for wrong in ("cpu=1", "[]"):
        with pytest.raises(SystemExit):
            parse(["--coordinator-resources", wrong])
        assert "no JSON" in (told := capsys.readouterr().err) or "no object" in told
