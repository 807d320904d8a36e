"""A coordinator whose journal lies on a volume: its claim, what it is told, and what people are."""

from dataclasses import replace

import pytest
import yaml

from elastic_ps.core.configuration import Role
from k8s.elastic_operator.job import manifests
from k8s.elastic_operator.job.actions import DeletePod, Ensure, StartCoordinator, StartNode, WriteEvent
from k8s.elastic_operator.job.manifests import Defaults
from k8s.elastic_operator.job.model import GOING, Counts
from k8s.elastic_operator.job.reconciliation import ObservedJob
from k8s.elastic_operator.job.status import RUNNING, STARTING, ElasticJobStatus
from tests.k8s.operator_cases import COORDINATOR, TAKEN, decide, job, kinds, running, server, usual, worker
from tests.paths import ROOT

VOLUME = {"volume": {"size": "2Gi", "storageClassName": "fast"}}
CLAIM = "digits-coordinator-uid-1234"
DEFAULTS = Defaults(image="runtime:1")


def pod_of(document, **start):
    pod = manifests.coordinator_pod(document, StartCoordinator(2, Counts(2, 1), **start), DEFAULTS)
    (container,) = pod["spec"]["containers"]
    (state,) = [volume for volume in pod["spec"]["volumes"] if volume["name"] == "dl2-state"]
    return pod, container, state


def test_the_claim_is_the_jobs_and_for_one_pod_at_a_time():
    claim = manifests.claim(job(coordinator=VOLUME))
    meta, spec = claim["metadata"], claim["spec"]
    assert (meta["name"], meta["namespace"]) == (CLAIM, "ns")
    assert meta["ownerReferences"][0]["uid"] == "uid-12345678"
    assert meta["labels"] == manifests.labels(job(), "coordinator")
    assert spec["accessModes"] == ["ReadWriteOncePod"]
    assert (spec["resources"]["requests"]["storage"], spec["storageClassName"]) == ("2Gi", "fast")


@pytest.mark.parametrize(("given", "there"), [({}, False), ({"storageClassName": ""}, True)])
def test_no_class_is_the_clusters_own_and_an_empty_one_is_none(given, there):
    spec = manifests.claim(job(coordinator={"volume": {"size": "1Gi", **given}}))["spec"]
    assert ("storageClassName" in spec) is there


def test_the_journal_lies_on_the_volume_and_its_user_may_write_there():
    pod, container, state = pod_of(job(coordinator=VOLUME))
    assert state["persistentVolumeClaim"] == {"claimName": CLAIM}
    (mount,) = [one for one in container["volumeMounts"] if one["name"] == "dl2-state"]
    command = container["command"]
    assert command[command.index("--folder") + 1] == mount["mountPath"]
    rights = pod["spec"]["securityContext"]
    assert rights["fsGroup"] == rights["runAsGroup"] == 65532
    _, _, without = pod_of(job())
    assert without == {"name": "dl2-state", "emptyDir": {}}


def test_nodes_do_not_have_it():
    pod = manifests.node_pod(job(coordinator=VOLUME), StartNode(Role.SERVER, 1), DEFAULTS, "10.96.0.9")
    assert CLAIM not in str(pod)


def test_a_run_with_new_nodes_does_not_ask_for_those_of_the_journal():
    _, container, _ = pod_of(job(coordinator=VOLUME), begins=True, restore=True)
    assert "--begin-again" in container["command"]
    assert "--restore" in container["command"]
    _, container, _ = pod_of(job(coordinator=VOLUME))
    assert "--begin-again" not in container["command"]


def test_the_operator_may_make_claims_and_no_more():
    text = (ROOT / "k8s" / "chart" / "templates" / "operator-rbac.yaml").read_text()
    rules = [yaml.safe_load(line)[0] for line in text.splitlines() if line.startswith("- {apiGroups:")]
    (rule,) = [rule for rule in rules if "persistentvolumeclaims" in rule["resources"]]
    assert (rule["apiGroups"], sorted(rule["verbs"])) == ([""], ["create", "get"])


# ---- a coordinator that is lost --------------------------------------------------------------------------------------


def lost(**more):
    """A job whose coordinator's pod is gone: the decision about it."""
    status = ElasticJobStatus(phase=RUNNING, term=2, trained=True)
    return decide(ObservedJob(status, (worker(1), worker(2), server(1))), job(**more))


def back(document=None, **report):
    """The next one answers in term 3."""
    status = lost(coordinator=VOLUME).status
    seen = running(worker(1), worker(2), server(1), report={"term": 3, **report})
    return decide(replace(seen, status=status), document or job(coordinator=VOLUME))


def test_the_next_one_reads_its_journal_and_says_so():
    done = lost(coordinator=VOLUME)
    assert kinds(done, Ensure, StartCoordinator) == [Ensure(), StartCoordinator(3, Counts(2, 1))]
    assert done.status.reason == "its coordinator is started again, and reads its journal"
    assert done.status.conditions["Coordinated"].status == "False"
    assert lost().status.reason == "its coordinator is started again, and asks its nodes"


@pytest.mark.parametrize("volume", [VOLUME, {}])
def test_what_was_not_seen_to_train_and_has_no_nodes_begins_if_its_journal_says_so(volume):
    """It may have trained, or finished, while no operator was there: it began from nothing, beside its checkpoints."""
    seen = ObservedJob(ElasticJobStatus(phase=STARTING, term=1, workers=1, servers=1))
    done = decide(seen, job(coordinator=volume))
    assert kinds(done, StartCoordinator) == [StartCoordinator(2, Counts(2, 1), begins=not volume)]


@pytest.mark.parametrize(
    ("rebuilt", "reason", "words"),
    [
        (False, "Resumed", "it goes on from its journal, and so does its ledger"),
        (True, "Rebuilt", "it had no journal, and knows the job from its nodes: its ledger begins here"),
    ],
)
def test_where_it_knows_the_job_from_stands_in_status_and_events(rebuilt, reason, words):
    done = back(rebuilt=rebuilt)
    told = done.status.conditions["Coordinated"]
    assert (told.status, told.reason, told.message) == ("True", reason, words)
    assert WriteEvent("CoordinatorBack", f"term 3: {words}") in done.actions
    again = decide(replace(usual(), status=done.status), job(coordinator=VOLUME))
    assert not [action for action in kinds(again, WriteEvent) if action.reason == "CoordinatorBack"]


def test_nothing_is_said_while_it_asks():
    done = back(phase="rebuilding")
    assert done.status.conditions["Coordinated"].status == "False"


def test_a_job_that_begins_has_lost_nothing():
    begun = decide(ObservedJob(verdict=TAKEN), job()).status
    seen = replace(usual(), status=begun)
    done = decide(seen, job())
    assert done.status.conditions["Coordinated"].reason == "Started"
    assert not [action for action in kinds(done, WriteEvent) if action.reason == "CoordinatorBack"]


# ---- a claim that is not bound ---------------------------------------------------------------------------------------


def waiting(claim, phase=STARTING, **pod):
    said = "not placed: pod has unbound immediate PersistentVolumeClaims"
    stuck = replace(COORDINATOR, **{"phase": "Pending", "node": "", "trouble": said, **pod})
    return decide(
        ObservedJob(ElasticJobStatus(phase=phase, term=1, observed_generation=3), (stuck,), claim=claim, prepared=3),
        job(coordinator=VOLUME),
    )


@pytest.mark.parametrize("phase", [STARTING, RUNNING])
@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ("Pending", f"kubectl describe pvc {CLAIM} says why"),
        ("Pending", "another coordinator.volume.storageClassName"),
        ("Lost", f"kubectl delete pvc {CLAIM}"),
        ("Bound", f"where the volume of its claim {CLAIM} is"),
    ],
)
def test_the_reason_says_what_to_do_about_a_claim(phase, claim, words):
    reason = waiting(claim, phase).status.reason
    assert reason.startswith("digits-coordinator is not placed: pod has unbound")
    assert words in reason


def test_a_claim_that_is_gone_is_made_again():
    done = waiting(GOING)
    assert kinds(done, Ensure) == [Ensure()]
    assert done.again is not None, "nobody tells when the old one is gone"
    assert kinds(waiting("Pending"), Ensure) == []


def test_a_volume_that_comes_to_another_node_is_waited_for():
    done = waiting("", RUNNING, node="node-2", trouble="")
    assert done.status.reason == "digits-coordinator starts on node-2, which its volume comes to (kubectl describe pod)"
    assert not kinds(done, DeletePod)
