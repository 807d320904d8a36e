"""Elastic jobs in real pods, for tests: made, scaled, disturbed, and their results."""

import base64
import json
from pathlib import Path

import numpy as np

from coordinator.client import CoordinatorClient
from coordinator.ctl.exactly_once_audit import audit
from tests.kube.kube_cluster import ROOT, until

SAMPLES, BATCH = 203, 16  # of tests/e2e/scripts/regression.py
START_SECONDS = 300.0  # of pods that share two cores with others


class KubeJob:
    """One ElasticJob.

    Args:
        cluster: that it is in.
        namespace: of it.
        name: of it.
        spec: of its document.
        folder: that its script writes to.
    """

    def __init__(self, cluster, namespace, name, spec, folder):
        self._cluster, self.namespace, self.name, self.folder = cluster, namespace, name, folder
        self.document = {
            "apiVersion": "dl2.scheduler/v1alpha1",
            "kind": "ElasticJob",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        }

    def kubectl(self, *words, **options):
        return self._cluster.kubectl("-n", self.namespace, *words, **options)

    def apply(self, check=True):
        return self.kubectl("apply", "-f", "-", text=json.dumps(self.document), check=check)

    def patch(self, **spec):
        self.kubectl("patch", "elasticjob", self.name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def scale(self, workers, servers):
        self.patch(workers={"replicas": workers}, servers={"replicas": servers})

    @property
    def status(self):
        found = self.kubectl("get", "elasticjob", self.name, "-o", "json", check=False).stdout
        return json.loads(found).get("status", {}) if found else {}

    def events(self):
        """Reasons of this job's own events; those of other tests' jobs stand beside them for an hour."""
        mine = f"involvedObject.kind=ElasticJob,involvedObject.name={self.name}"
        return self.kubectl(
            "get", "events", "--field-selector", mine, "-o", "jsonpath={.items[*].reason}"
        ).stdout.split()

    def tell(self):
        """All that helps to see why it is not as it should be."""
        said = [json.dumps(self.status, indent=1)]
        for words in (("get", "pods", "-o", "wide"), ("get", "events", "--sort-by=.lastTimestamp")):
            said.append(self.kubectl(*words, check=False).stdout[-4000:])
        said.append(self.kubectl("logs", "deploy/dl2-operator", "--tail=30", check=False).stdout)
        for pod in self.pods():
            name = pod["metadata"]["name"]
            said.append(f"--- {name}\n{self.kubectl('logs', name, '--tail=15', check=False).stdout}")
        return "\n".join(said)

    def until(self, ready, what, timeout=START_SECONDS):
        """Wait until `ready(status)`; returns the status."""

        def look():
            status = self.status
            assert status.get("phase") not in ("Failed", "Completed") or ready(status), (
                f"{what}: it has ended\n{self.tell()}"
            )
            return status if ready(status) else None

        return until(look, what, timeout, self.tell)

    def running(self, workers, servers, timeout=START_SECONDS):
        """Wait until so many train, and no plan is under way."""
        return self.until(
            lambda status: (
                status.get("phase") == "Running"
                and (status["workers"], status["servers"]) == (workers, servers)
                and not status.get("plan")
            ),
            f"{self.name} runs with {workers} workers and {servers} servers",
            timeout,
        )

    def phase(self, phase, timeout=START_SECONDS):
        return self.until(lambda status: status.get("phase") == phase, f"{self.name} is {phase}", timeout)

    def trained(self, epochs, timeout=60.0):
        """Wait until it has trained further."""
        begun = self.status.get("epoch", 0)
        return self.until(lambda status: status.get("epoch", 0) >= begun + epochs, f"{epochs} epochs more", timeout)

    def suspend_and_return(self, workers, servers):
        """Suspend it until its pods are gone, and let it go on from its checkpoint; returns its status then."""
        self.patch(suspend=True)
        suspended = self.phase("Suspended")
        until(lambda: not self.pods(), "its pods are gone", 60, self.tell)
        assert Path(suspended["checkpoint"]).is_dir()
        self.patch(suspend=False)
        back = self.running(workers, servers)
        assert back["epoch"] >= 2
        return back

    def pods(self, role=None):
        selector = f"dl2.scheduler/job={self.name}" + (f",dl2.scheduler/role={role}" if role else "")
        found = self.kubectl("get", "pods", "-l", selector, "-o", "json").stdout
        return json.loads(found)["items"]

    def living(self, role):
        """Names of pods that run and are not being deleted."""
        return sorted(
            pod["metadata"]["name"]
            for pod in self.pods(role)
            if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
        )

    def kill(self, pod):
        """End a node's process as a crash would: SIGKILL to what its launcher started."""
        script = (
            "import os,pathlib;"
            "children=[int(p.name) for p in pathlib.Path('/proc').iterdir() if p.name.isdigit() and p.name!='1' and"
            " (p/'stat').read_text().rsplit(')',1)[1].split()[1]=='1' and int(p.name)!=os.getpid()];"
            "[os.kill(c,9) for c in children];print(len(children))"
        )
        killed = self.kubectl("exec", pod, "--", str(ROOT / ".venv" / "bin" / "python"), "-c", script).stdout
        assert int(killed) > 0, f"nothing to kill in {pod}"

    @property
    def seed(self):
        """Of the order of its samples."""
        (pod,) = self.pods("coordinator")
        command = pod["spec"]["containers"][0]["command"]
        return int(command[command.index("--seed") + 1])

    def delete_at_once(self, pod):
        """As if its node were gone."""
        self.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")

    def client(self):
        """Of its coordinator, by the pod's address."""
        of_job = "-l", f"dl2.scheduler/job={self.name}"
        token = self.kubectl("get", "secret", *of_job, "-o", "jsonpath={.items[0].data.token}").stdout
        (pod,) = self.pods("coordinator")
        return CoordinatorClient(f"{pod['status']['podIP']}:7000", bytes.fromhex(base64.b64decode(token).decode()))

    def prove_so_far(self):
        """Every sample of every epoch that is over entered every parameter exactly once; waits for the first."""
        with self.client() as client:
            epochs = until(lambda: max(0, int(client.status().epoch) - 1), "an epoch is over", 60, self.tell)

            def proof():
                entries = [entry for entry in client.ledger() if entry.epoch < epochs]
                return audit(entries, SAMPLES, BATCH, epochs)

            # servers report what they applied a little later: on a busy machine some of these short epochs later
            until(lambda: proof().exactly_once, f"{epochs} epochs are proved", 30, lambda: proof().problems)
        return epochs

    def finish(self, timeout=90.0):
        """End a regression at an epoch's end; returns its weights."""
        self.order = self.seed
        (self.folder / "finish").touch()
        self.phase("Completed", timeout)
        with np.load(self.folder / "weights.npz") as found:
            return {name: found[name] for name in found}

    def delete(self):
        if self._cluster.defines_jobs():
            self.kubectl("delete", "elasticjob", self.name, "--ignore-not-found", "--timeout=90s")
