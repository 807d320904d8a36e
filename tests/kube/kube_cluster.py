"""A cluster for tests: by KUBECONFIG, else the one that `shared/tools/kube` beside the checkout starts."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.paths import ROOT

TOOL = ROOT.parent / "shared" / "tools" / "kube" / "kube"
IMAGE = "localhost/python:3.11"
CRD = "elasticjobs.dl2.scheduler"
_CALL_SECONDS = 120.0


class NoCluster(AssertionError):
    """There is none to test on; says what to do."""


def run(*command, check=True, text=None, timeout=_CALL_SECONDS):
    """Run a program; its output, or an error with all that it said."""
    done = subprocess.run(
        [str(word) for word in command], input=text, capture_output=True, text=True, timeout=timeout, check=False
    )
    if check and done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done


class Cluster:
    """One that answers.

    Args:
        kubeconfig: of it.
        started: the tool started it for these tests, and stops it.
    """

    def __init__(self, kubeconfig, started):
        self.kubeconfig, self.started = Path(kubeconfig), started
        os.environ["KUBECONFIG"] = str(kubeconfig)
        home = Path(os.environ.get("KUBE_HOME", Path.home() / ".cache" / "kube-testbed"))
        self._programs = {name: shutil.which(name) or home / "bin" / name for name in ("kubectl", "helm")}

    @property
    def ours(self):
        """Whether it is the tool's: its nodes are this machine, and run what is packed here."""
        return TOOL.exists() and "kube-testbed" in str(self.kubeconfig.resolve())

    def kubectl(self, *words, check=True, text=None, timeout=_CALL_SECONDS):
        return run(self._programs["kubectl"], *words, check=check, text=text, timeout=timeout)

    def helm(self, *words, check=True, timeout=400):
        return run(self._programs["helm"], *words, check=check, timeout=timeout)

    def get(self, what, *words):
        return json.loads(self.kubectl("get", what, *words, "-o", "json").stdout)

    def defines_jobs(self):
        """Whether it knows ElasticJobs: not any more after the uninstall of who brought their definition."""
        return bool(self.kubectl("get", "crd", CRD, "--ignore-not-found").stdout)

    def pack(self):
        """The image that pods run, on every node."""
        run(TOOL, "image", IMAGE, timeout=300)

    def node(self, what, name):
        """`stop`, `start`, `pause` or `resume` one of the tool's nodes, which are called node-1, node-2 ..."""
        run(TOOL, "node", what, name.removeprefix("node-"), timeout=180)

    def stop(self):
        if self.started:
            run(TOOL, "down", timeout=120)


def find():
    """The cluster to test on. Raises NoCluster."""
    given = os.environ.get("KUBECONFIG")
    if given:
        print(f"\nthe cluster of KUBECONFIG={given}", file=sys.stderr)
        return Cluster(given, started=False)
    if not TOOL.exists() or os.geteuid() != 0:
        raise NoCluster(
            f"no cluster: set KUBECONFIG, or put the test cluster's tool at {TOOL} and be root, as it needs"
        )
    before = run(TOOL, "status", check=False).stdout
    printed = run(TOOL, "up", "--nodes", "2", "--fake-nodes", "1", timeout=600).stdout.split()
    kubeconfig = next(word for word in reversed(printed) if "kubeconfig" in word)
    started = any(line.split() == ["kube-apiserver", "not", "running"] for line in before.splitlines())
    how = "started" if started else "it was running"
    print(f"\nthe cluster of {TOOL} ({how}), {kubeconfig}", file=sys.stderr)
    return Cluster(kubeconfig, started)


def until(ready, what, timeout, tell=lambda: ""):
    """Look until `ready()` is true; returns it."""
    deadline = time.monotonic() + timeout
    while not (found := ready()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout:g} s\n{tell()}")
        time.sleep(0.25)
    return found
