"""A cluster with the chart installed, and jobs in it."""

import compileall
import secrets
import shutil
import tempfile
from pathlib import Path

import kube_cluster
import pytest
import yaml
from kube_cluster import IMAGE, ROOT
from kube_jobs import KubeJob, Place

_PACKAGES = ("coordinator", "elastic_ps", "protos", "dl2_scheduler", "k8s", "examples")
_E2E = "tests/e2e/scripts"


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
    """Sources of our own, compiled, which edits of the checkout do not touch; and a folder that pods may write to."""
    top = Path(tempfile.mkdtemp(prefix="dl2-kube-", dir="/var/tmp"))
    top.chmod(0o755)
    sources, shared = top / "sources", top / "shared"
    for name in (*_PACKAGES, _E2E):
        shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(sources, quiet=2)
    shared.mkdir()
    shared.chmod(0o777)
    yield Place(sources, shared)
    shutil.rmtree(top, ignore_errors=True)


class Release:
    """The chart, installed in a namespace of its own, which its jobs are in too."""

    def __init__(self, cluster, place, folder):
        self.cluster = cluster
        self.namespace = self.name = f"dl2-test-{secrets.token_hex(3)}"
        self.owns_definition = not cluster.defines_jobs()
        part = {
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "python": place.python,
            "env": place.environment,
            "volumes": place.volumes,
            "volumeMounts": place.mounts,
        }
        values = {
            "namespaces": [self.namespace],
            "definition": self.owns_definition,
            "operator": part,
            "scheduler": {"enabled": False},
        }
        self._values = folder / f"{self.name}.yaml"
        self._values.write_text(yaml.safe_dump(values))

    def install(self):
        words = ["-n", self.namespace, "-f", self._values, "--wait", "--timeout", "180s"]
        self.cluster.helm("install", self.name, ROOT / "k8s" / "chart", "--create-namespace", *words)

    def operators(self):
        """Its operator's pods that are not being deleted: node by name."""
        selector = "app.kubernetes.io/component=dl2-operator"
        found = self.cluster.get("pods", "-n", self.namespace, "-l", selector)["items"]
        staying = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in staying}

    def uninstall(self):
        self.cluster.helm("uninstall", self.name, "-n", self.namespace, "--wait", "--timeout", "300s")


@pytest.fixture(scope="session")
def release(cluster, place, tmp_path_factory):
    found = Release(cluster, place, tmp_path_factory.mktemp("release"))
    found.install()
    yield found
    cluster.helm("uninstall", found.name, "-n", found.namespace, "--wait", "--timeout", "300s", check=False)
    cluster.kubectl("delete", "namespace", found.namespace, "--ignore-not-found", "--wait=false")


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
