"""The chart in a cluster, and what pods run there: for tests, and for benchmarks/cluster_pods.py."""

import compileall
import secrets
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.kube.kube_cluster import CRD, IMAGE, ROOT

CHART = ROOT / "k8s" / "chart"
_PACKAGES = ("coordinator", "elastic_ps", "protos", "dl2_scheduler", "k8s", "examples")
_E2E = "tests/e2e/scripts"


class Place:
    """Where pods find what they run: this checkout's environment, a copy of its sources, a folder to write to.

    Args:
        sources: folder with our packages.
        shared: folder that pods write to.
    """

    def __init__(self, sources, shared):
        self.sources, self.shared = sources, shared
        self.python = str(ROOT / ".venv" / "bin" / "python")
        self.environment = [
            {"name": "PYTHONPATH", "value": f"{sources}:{sources}/tests/e2e/scripts"},
            {"name": "OMP_NUM_THREADS", "value": "1"},
        ]
        self.volumes = [
            {"name": "environment", "hostPath": {"path": str(ROOT / ".venv")}},
            {"name": "sources", "hostPath": {"path": str(sources)}},
        ]
        self.mounts = [
            {"name": "environment", "mountPath": str(ROOT / ".venv"), "readOnly": True},
            {"name": "sources", "mountPath": str(sources), "readOnly": True},
        ]

    def template(self, command, scheduler, with_shared=True):
        """A pod template whose container has this command."""
        container = {
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "env": self.environment,
            "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
            "volumeMounts": self.mounts,
        }
        volumes = self.volumes
        if command:
            container["command"] = [self.python, *command]
        if with_shared:
            volumes = [*volumes, {"name": "shared", "hostPath": {"path": str(self.shared)}}]
            container["volumeMounts"] = [*self.mounts, {"name": "shared", "mountPath": str(self.shared)}]
        return {"spec": {"schedulerName": scheduler, "containers": [container], "volumes": volumes}}


@contextmanager
def prepared():
    """A `Place`: sources of our own, compiled, which edits of the checkout do not touch; and a folder to write to."""
    top = Path(tempfile.mkdtemp(prefix="dl2-kube-", dir="/var/tmp"))
    top.chmod(0o755)
    sources, shared = top / "sources", top / "shared"
    try:
        for name in (*_PACKAGES, _E2E):
            shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(sources, quiet=2)
        shared.mkdir()
        shared.chmod(0o777)
        yield Place(sources, shared)
    finally:
        shutil.rmtree(top, ignore_errors=True)


class Release:
    """The chart, installed in a namespace of its own, which its jobs are in too.

    A context manager: nothing of it stays.

    Args:
        cluster: that it is in.
        place: what its pods run.
        folder: for its values.
        scheduler: whether it has one of ours.
    """

    def __init__(self, cluster, place, folder, scheduler=False):
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
            "operator": {**part, "replicas": 1},  # so that a node without any is left, and tests see whom they kill
            "scheduler": {**part, "enabled": scheduler},
        }
        self._values = folder / f"{self.name}.yaml"
        self._values.write_text(yaml.safe_dump(values))

    def __enter__(self):
        try:
            self.install()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        words = ("--ignore-not-found", "--timeout=100s")
        try:
            self.uninstall(check=False)
        finally:
            self.cluster.kubectl("delete", "namespace", self.namespace, *words, check=False)
            if self.owns_definition:  # it stays, as jobs of others may need it
                self.cluster.kubectl("delete", "crd", CRD, *words, check=False)

    def upgrade(self, *words, check=True):
        """With other values."""
        values = ("-f", self._values, "--wait", "--timeout", "180s")
        return self.cluster.helm("upgrade", self.name, CHART, "-n", self.namespace, *values, *words, check=check)

    def install(self):
        words = ["-n", self.namespace, "-f", self._values, "--wait", "--timeout", "180s"]
        self.cluster.helm("install", self.name, CHART, "--create-namespace", *words)

    def operators(self):
        """Its operator's pods that are not being deleted: node by name."""
        selector = "app.kubernetes.io/component=dl2-operator"
        found = self.cluster.get("pods", "-n", self.namespace, "-l", selector)["items"]
        staying = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in staying}

    def uninstall(self, check=True):
        self.cluster.helm("uninstall", self.name, "-n", self.namespace, "--wait", "--timeout", "300s", check=check)


@contextmanager
def definition(cluster):
    """ElasticJobs are defined, whoever is installed; the definition goes again where it was not there before."""
    if cluster.defines_jobs():
        yield
        return
    words = ("--no-hooks", "--kube-version", "1.34", "-s", "templates/crd.yaml")
    cluster.kubectl("apply", "-f", "-", text=cluster.helm("template", "dl2", CHART, *words).stdout)
    try:
        cluster.kubectl("wait", "--for=condition=Established", f"crd/{CRD}", "--timeout=60s")
        yield
    finally:
        cluster.kubectl("delete", "crd", CRD, "--ignore-not-found", "--timeout=100s")
