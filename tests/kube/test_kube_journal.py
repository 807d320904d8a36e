"""A coordinator's journal on a volume: whatever becomes of the pod, one ledger proves the job from its first epoch."""

import json
import secrets

import pytest

from coordinator.ctl.exactly_once_audit import audit
from coordinator.server.ledger_files import Ledger
from tests.kube.kube_cluster import until
from tests.kube.kube_jobs import BATCH, SAMPLES
from tests.kube.test_kube_faults import assert_undisturbed
from tests.kube.test_kube_smoke import REGRESSION


class Disks:
    """Volumes of node-1, made by hand."""

    def __init__(self, cluster, folder):
        self._cluster, self._folder = cluster, folder
        self.made = []

    def make(self, storage):
        """Root's own: who is not of the pod's group cannot write there. Returns its folder."""
        name = f"{storage}-{len(self.made)}"
        folder = self._folder / name
        folder.mkdir()
        folder.chmod(0o755)
        on = [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOncePod"],
            "storageClassName": storage,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": on}]}},
        }
        volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
        self._cluster.kubectl("create", "-f", "-", text=json.dumps(volume))
        self.made.append(name)
        return folder

    def remove(self):
        for name in self.made:
            self._cluster.kubectl("delete", "pv", name, "--ignore-not-found", "--wait=false")


@pytest.fixture
def disks(cluster, place):
    found = Disks(cluster, place.shared)
    yield found
    found.remove()


@pytest.fixture
def journalled(make_job):
    """Makes a regression whose coordinator has a volume."""

    def make(name, workers=2, **spec):
        storage = f"dl2-test-{secrets.token_hex(3)}"
        volume = {"size": "64Mi", "storageClassName": storage}
        return make_job(name, REGRESSION, workers, 1, coordinator={"volume": volume}, **spec), storage

    return make


def claims_of(job):
    found = job.kubectl("get", "pvc", "-l", f"dl2.scheduler/job={job.name}", "-o", "json").stdout
    return json.loads(found)["items"]


def coordinated(status):
    return next(each for each in status["conditions"] if each["type"] == "Coordinated")


def proved_by_its_volume(folder, epochs):
    """The ledger that is left on it, from the first epoch on."""
    (ledger,) = folder.rglob("ledger.jsonl")
    book = Ledger(ledger)
    proof = audit(book.entries(()), SAMPLES, BATCH, epochs)
    book.close()
    assert proof.exactly_once, proof.problems
    assert ledger.stat().st_uid == ledger.stat().st_gid == 65532


def test_a_coordinator_comes_back_with_its_journal_and_its_ledger(journalled, disks):
    job, storage = journalled("kept")
    folder = disks.make(storage)
    job.apply()
    term = job.running(2, 1)["term"]
    (claim,) = claims_of(job)
    assert (claim["spec"]["accessModes"], claim["status"]["phase"]) == (["ReadWriteOncePod"], "Bound")
    assert claim["metadata"]["ownerReferences"][0]["kind"] == "ElasticJob"
    job.trained(2)
    job.delete_at_once("kept-coordinator")
    job.until(lambda status: status["term"] > term, "another term")
    back = job.until(lambda status: coordinated(status)["status"] == "True", "another coordinator")
    assert coordinated(back)["reason"] == "Resumed", coordinated(back)
    job.running(2, 1)
    assert "CoordinatorBack" in job.kubectl("get", "events", "--field-selector", "involvedObject.name=kept").stdout
    job.trained(2)
    assert job.prove_so_far() > 2
    with job.client() as client:
        assert client.plans()[0].id == 1, "plans that had ended are known"
    assert_undisturbed(job)
    proved_by_its_volume(folder, int(job.status["epoch"]))
    assert len(claims_of(job)) == 1
    job.delete()
    until(lambda: not claims_of(job), "the claim goes with the job", 60, job.tell)


def test_a_suspended_job_keeps_its_claim_and_its_ledger(journalled, disks):
    job, storage = journalled("slept", 1, checkpoint={"url": "shared"})
    folder = disks.make(storage)
    job.apply()
    job.running(1, 1)
    job.trained(2)
    job.patch(suspend=True)
    job.phase("Suspended")
    until(lambda: not job.pods(), "its pods are gone", 60, job.tell)
    (claim,) = claims_of(job)
    job.patch(suspend=False)
    job.running(1, 1)
    job.trained(2)
    assert job.prove_so_far() > 2
    assert claims_of(job)[0]["metadata"]["uid"] == claim["metadata"]["uid"]
    with job.client() as client:
        assert {node.member.id for node in client.status().nodes} == {"w1", "s1"}, "names go on"
    assert_undisturbed(job)
    assert list(folder.rglob("journal.sqlite"))


def test_a_claim_without_a_volume_is_the_reason_and_a_volume_may_be_given_up(journalled, disks):
    job, storage = journalled("roofless", 1)
    job.apply()
    (name,) = until(lambda: [each["metadata"]["name"] for each in claims_of(job)], "a claim", 60, job.tell)
    words = f"kubectl describe pvc {name} says why"
    told = job.until(lambda status: words in status.get("reason", ""), "the reason", 60)
    assert told["reason"].startswith("roofless-coordinator is not placed: ")
    disks.make(storage)
    job.running(1, 1)
    job.trained(1)
    disks.make(storage)
    job.kubectl("delete", "pvc", name, "--wait=false")  # it is in use, and goes with the pod
    job.kubectl("delete", "pod", "roofless-coordinator", "--wait=false")
    back = job.until(lambda status: coordinated(status)["reason"] in ("Resumed", "Rebuilt"), "another coordinator")
    assert coordinated(back)["reason"] == "Rebuilt", coordinated(back)
    job.trained(1)
    job.delete()
    until(lambda: not claims_of(job), "the claim goes with the job", 60, job.tell)
