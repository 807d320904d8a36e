"""A cluster with the chart installed, and jobs in it."""

import secrets
from pathlib import Path

import pytest

from tests.kube import kube_cluster
from tests.kube.kube_jobs import KubeJob
from tests.kube.kube_release import Release, prepared


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.kube)
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def cluster():
    found = kube_cluster.find()
    found.kubectl("version")
    if not found.ours:
        pytest.fail(
            "these tests mount this checkout into pods, so their nodes must be this machine: "
            "leave KUBECONFIG to the test cluster's tool (../shared/tools/kube)"
        )
    found.pack()
    yield found
    found.stop()


@pytest.fixture(scope="session")
def place():
    """See `prepared`."""
    with prepared() as made:
        yield made


@pytest.fixture(scope="session")
def release(cluster, place, tmp_path_factory):
    with Release(cluster, place, tmp_path_factory.mktemp("release")) as found:
        yield found


@pytest.fixture
def make_job(cluster, release, place):
    """Makes jobs; those that a test leaves are deleted."""
    made = []

    def make(name, command, workers=1, servers=1, **spec):
        folder = place.shared / f"{name}-{secrets.token_hex(3)}"
        folder.mkdir()
        folder.chmod(0o777)
        words = [str(word).format(folder=folder, sources=place.sources) for word in command]
        whole = {
            "modelType": "test",
            "scaling": "Manual",
            "workers": {"replicas": workers, "max": 4, "template": place.template(words, "default-scheduler")},
            "servers": {"replicas": servers, "max": 4},
            **spec,
        }
        if whole.get("checkpoint", {}).get("url") == "shared":
            whole["checkpoint"]["url"] = str(folder / "checkpoints")
        made.append(KubeJob(cluster, release.namespace, name, whole, folder))
        return made[-1]

    yield make
    for job in made:
        job.delete()
