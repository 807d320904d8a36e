"""A scheduler of the real program on a real API server, fake nodes, and an operator's part played by hand."""

import os
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

import yaml

from dl2_scheduler.backends.kube.apiserver.object_reading import job_of, pod_of
from k8s.foundation.api_server import ApiError, KubeApi, NotFound, job_path

DEADLINE = 60.0


def eventually(look, what, seconds=DEADLINE):
    """What `look` returns when it is true; it may fail meanwhile."""
    end = time.monotonic() + seconds
    while True:
        with suppress(NotFound):
            if found := look():
                return found
        if time.monotonic() > end:
            raise AssertionError(f"after {seconds:g} s still not: {what}")
        time.sleep(0.1)


def spec(cpu, label):
    """Of pods that go to this test's nodes alone."""
    return {
        "nodeSelector": {"dl2-test": label},
        "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
        "containers": [{"name": "main", "image": "i", "command": ["python"], "resources": {"requests": {"cpu": cpu}}}],
    }


class Schedulers:
    """Programs that schedule one namespace, where their lease is too. A context manager: it ends them.

    Args:
        namespace: served.
        folder: of their state and logs.
    """

    def __init__(self, namespace, folder):
        self.namespace, self.folder = namespace, folder
        self.api = KubeApi()
        self.processes = []
        self._lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/dl2-scheduler"
        config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
        for context in config["contexts"]:
            context["context"]["namespace"] = namespace
        (folder / "kubeconfig").write_text(yaml.safe_dump(config))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        with suppress(NotFound):
            self.api.delete(self._lease)

    def serve(self, number=1, *options):
        command = [sys.executable, "-c", "from dl2_scheduler.cli import main; main()", "serve", "--kube"]
        command += ["--namespace", self.namespace, "--slot", "1s", "--guard-slots", "0"]
        folder = self.folder / f"serve-{number}"
        environment = {**os.environ, "KUBECONFIG": str(self.folder / "kubeconfig"), "OMP_NUM_THREADS": "1"}
        with (self.folder / f"serve-{number}.log").open("ab") as log:
            process = subprocess.Popen(
                [*command, "--folder", str(folder), *options], env=environment, stdout=log, stderr=log
            )
        self.processes.append(process)
        return process

    def log(self, number=1):
        return (self.folder / f"serve-{number}.log").read_text()

    def leads(self, number=1):
        return eventually(lambda: "leading: " in self.log(number), f"scheduler {number} leads")

    def holder(self):
        return self.api.get(self._lease)["spec"]["holderIdentity"]


class Bench(Schedulers):
    """One test's namespace, nodes and schedulers. A context manager: nothing of it stays."""

    def __init__(self, folder: Path):
        self.name = f"sched-{uuid.uuid4().hex[:8]}"
        super().__init__(self.name, folder)
        self.pods_path = f"/api/v1/namespaces/{self.name}/pods"
        self.nodes = []

    def __enter__(self):
        self.api.create("/api/v1/namespaces", {"metadata": {"name": self.name}})
        return self

    def __exit__(self, *_):
        super().__exit__()
        for pod in self.pods():
            with suppress(ApiError):
                self.api.delete(f"{self.pods_path}/{pod.name}", {"gracePeriodSeconds": 0})
        for node in self.nodes:
            self.api.delete(f"/api/v1/nodes/{node}")
        self.api.delete(f"/api/v1/namespaces/{self.name}")

    # ---- nodes, jobs, pods -----------------------------------------------------------------------------------------

    def add_node(self, cpu="8"):
        name = f"{self.name}-{len(self.nodes)}"
        amounts = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
        self.api.create(
            "/api/v1/nodes",
            {
                "metadata": {
                    "name": name,
                    "labels": {"dl2-test": self.name, "kubernetes.io/hostname": name},
                    "annotations": {"kwok.x-k8s.io/node": "fake"},
                },
                "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
                "status": {"allocatable": amounts, "capacity": amounts},
            },
        )
        self.nodes.append(name)

        def ready():
            conditions = self.api.get(f"/api/v1/nodes/{name}")["status"].get("conditions", ())
            return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

        eventually(ready, "a fake node is ready (kwok has to run: ../shared/tools/kube/kube up --fake-nodes 1)")

    def submit(self, name, workers=2, servers=1, cpu="1", **more):
        """A job that is scaled by hand, so that its pods are wanted at once; `scaling` may say otherwise."""
        roles = {
            role: {"min": least, "max": max(4, least), "replicas": least, "template": {"spec": spec(cpu, self.name)}}
            for role, least in (("workers", workers), ("servers", servers))
        }
        made = {"modelType": "digits", "epochs": 40, "scaling": "Manual", **roles, **more}
        body = {"apiVersion": "dl2.scheduler/v1alpha1", "kind": "ElasticJob", "metadata": {"name": name}, "spec": made}
        del body["spec"]["servers"]["template"]["spec"]["containers"][0]["command"]  # servers have none
        self.api.create(job_path(self.name, "")[:-1], body)

    def job(self, name):
        return job_of(self.api.get(job_path(self.name, name)))

    def add_pods(self, job, workers=2, servers=1, cpu="1", gang=None, coordinator=True, **more):
        """What the operator makes of a job; `more` of each pod's spec."""
        names = [("coordinator", "coordinator", "100m")] * coordinator
        names += [(f"server-{number}", "server", cpu) for number in range(servers)]
        names += [(f"worker-{number}", "worker", cpu) for number in range(workers)]
        kind = {"apiVersion": "dl2.scheduler/v1alpha1", "kind": "ElasticJob"}
        owner = {**kind, "name": job, "uid": self.job(job).uid}
        for short, role, takes in names:
            self.api.create(
                self.pods_path,
                {
                    "metadata": {
                        "name": f"{job}-{short}",
                        "labels": {"dl2.scheduler/job": job, "dl2.scheduler/role": role},
                        "ownerReferences": [owner],
                        "annotations": {"dl2.scheduler/gang": gang or f"{workers},{servers}"},
                    },
                    "spec": {"schedulerName": "dl2", **spec(takes, self.name), **more},
                },
            )

    def pods(self, job=None):
        found = [pod_of(each) for each in self.api.get(self.pods_path)["items"]]
        return [pod for pod in found if job is None or pod.job == job]

    def bound(self, job):
        return [pod for pod in self.pods(job) if pod.node]

    def events(self, pod):
        query = {"fieldSelector": f"involvedObject.name={pod}"}
        return [each["message"] for each in self.api.get(f"/api/v1/namespaces/{self.name}/events", query)["items"]]
