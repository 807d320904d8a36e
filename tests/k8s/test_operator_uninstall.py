"""The program that ends jobs before the chart goes."""

import pytest

from k8s.elastic_operator import uninstall
from k8s.foundation.api_server import JOBS_PATH, NotFound

JOB = {"metadata": {"name": "digits", "namespace": "ns"}}
KEY = "/api/v1/namespaces/dl2-system/secrets/dl2-operator-key"


class Server:
    """Has these jobs, one look after the other; None: it does not know what jobs are."""

    def __init__(self, *looks):
        self.looks, self.deleted = list(looks), []

    def get(self, path):
        assert path == JOBS_PATH
        if (found := self.looks.pop(0)) is None:
            raise NotFound("the server could not find the requested resource", 404)
        return {"items": found}

    def delete(self, path):
        self.deleted.append(path)


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(uninstall.time, "sleep", lambda seconds: None)

    def run(server, *words):
        monkeypatch.setattr(uninstall, "KubeApi", lambda in_cluster: server)
        return uninstall.main([*words, "--delete-secret", "dl2-system/dl2-operator-key"])

    return run


def test_jobs_are_deleted_once_and_waited_for_and_then_the_key_goes(run):
    going = {"metadata": {**JOB["metadata"], "deletionTimestamp": "2027-01-01T00:00:00Z"}}
    server = Server([JOB], [going], [])
    assert run(server) == 0
    assert server.deleted == ["/apis/dl2.scheduler/v1alpha1/namespaces/ns/elasticjobs/digits", KEY]


def test_jobs_of_other_namespaces_stay(run):
    server = Server([JOB])
    assert run(server, "--namespace", "other") == 0
    assert server.deleted == [KEY]


def test_where_the_definition_is_gone_there_are_no_jobs(run):
    server = Server(None)
    assert run(server) == 0
    assert server.deleted == [KEY]
