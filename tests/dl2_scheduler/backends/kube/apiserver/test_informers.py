"""A cluster that several watches tell of: what it is known by when they have begun."""

import pytest

from dl2_scheduler.backends.kube.apiserver.informers import Informers
from k8s.foundation.api_server import ApiUnavailable, Rejected
from tests.dl2_scheduler.kube_objects import job, node
from tests.dl2_scheduler.played_kube import JOBS, PlayedApi

SECONDS = 1.0


class Guarded(PlayedApi):
    """Refuses what is asked about the namespace `gone`."""

    def get(self, path, query=None):
        if path == JOBS.format("gone"):
            raise Rejected('elasticjobs is forbidden in the namespace "gone"', 403)
        return super().get(path, query)


@pytest.fixture
def begun():
    """Makes informers of some namespaces and lets them begin."""
    api, made = Guarded(), []
    api.add("/api/v1/nodes", node("a"))
    api.add(JOBS.format("team"), job("one", namespace="team"))

    def begin(*namespaces):
        made.append(Informers(api, namespaces, lambda: None))
        made[-1].start(SECONDS)
        return made[-1]

    yield begin
    for each in made:
        each.stop()
    api.end_watches()


def test_a_namespace_that_is_refused_keeps_no_other_from_being_served(begun, caplog):
    """Its rights go with it: whoever deleted one of its namespaces took the scheduler from all others."""
    found = begun("gone", "team")
    assert [job.key for job in found.jobs()] == [("team", "one")]
    assert [node.name for node in found.nodes()] == ["a"]
    assert 'forbidden in the namespace "gone"; it is tried again' in caplog.text


def test_where_all_are_refused_nothing_begins(begun):
    with pytest.raises(ApiUnavailable, match="could not be listed within 1 s"):
        begun("gone")
