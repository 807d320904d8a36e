"""The pods, service, secret and budgets that the operator makes of a document."""

from dataclasses import replace

import pytest

from elastic_ps.core.configuration import Role
from k8s.elastic_operator.job import manifests
from k8s.elastic_operator.job.actions import StartCoordinator, StartNode
from k8s.elastic_operator.job.manifests import Defaults
from k8s.elastic_operator.job.model import Counts
from tests.k8s.operator_cases import SPEC, job

DEFAULTS = Defaults(image="runtime:1")


def with_template(container, **spec):
    workers = {**SPEC["workers"], "min": 2, "template": {"spec": {"containers": [container], **spec}}}
    return job(workers=workers)


WHOLE = with_template(
    {
        "command": ["/opt/python", "-m", "train"],
        "args": ["--epochs", "3"],
        "env": [{"name": "A", "value": "b"}],
        "resources": {"requests": {"slots": 1, "cpu": "1"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    },
    volumes=[{"name": "data", "emptyDir": {}}],
    nodeSelector={"kind": "gpu"},
)


def container_of(pod):
    (container,) = pod["spec"]["containers"]
    return container


def test_a_worker_runs_the_script_by_its_own_interpreter():
    pod = manifests.node_pod(WHOLE, StartNode(Role.WORKER, 3), DEFAULTS, "10.96.0.9")
    command = container_of(pod)["command"]
    assert pod["metadata"]["name"] == "digits-worker-3"
    assert command[:4] == ["/opt/python", "-P", "-m", "elastic_ps.launch"], "a protos beside the script hides none"
    assert command[-4:] == ["-m", "train", "--epochs", "3"]
    assert command[command.index("--nonce-prefix") + 1] == "digits-worker-3"
    assert command[command.index("--coordinator") + 1] == "10.96.0.9:7000"
    assert container_of(pod)["resources"]["requests"] == {"cpu": "1"}
    assert {"name": "A", "value": "b"} in container_of(pod)["env"]
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["schedulerName"] == "dl2"
    assert pod["metadata"]["annotations"]["dl2.scheduler/gang"] == "2,1"


def test_a_drain_is_over_before_the_grace_of_its_pod():
    pod = manifests.node_pod(WHOLE, StartNode(Role.WORKER, 1), DEFAULTS, "10.96.0.9")
    command = container_of(pod)["command"]
    assert int(command[command.index("--grace") + 1]) < pod["spec"]["terminationGracePeriodSeconds"]


@pytest.mark.parametrize(("held", "seconds"), [(0, 60), (1, 61), (50_000_000, 61), (10_000_000_000, 260)])
def test_who_has_more_to_hand_over_has_longer(held, seconds):
    pod = manifests.node_pod(WHOLE, StartNode(Role.SERVER, 1, held), DEFAULTS, "10.96.0.9")
    command = container_of(pod)["command"]
    assert pod["spec"]["terminationGracePeriodSeconds"] == seconds
    assert int(command[command.index("--grace") + 1]) == seconds - 10


def test_a_templates_own_grace_holds():
    own = with_template({"command": ["python", "x.py"]}, terminationGracePeriodSeconds=7)
    pod = manifests.node_pod(own, StartNode(Role.SERVER, 1, 10**12), DEFAULTS, "10.96.0.9")
    assert pod["spec"]["terminationGracePeriodSeconds"] == 7


def test_a_server_without_a_template_has_the_workers_surroundings_and_not_its_script():
    pod = manifests.node_pod(WHOLE, StartNode(Role.SERVER, 1), DEFAULTS, "10.96.0.9")
    assert "train" not in container_of(pod)["command"]
    assert "resources" not in container_of(pod)
    assert {"name": "data", "mountPath": "/data"} in container_of(pod)["volumeMounts"]
    assert pod["spec"]["nodeSelector"] == {"kind": "gpu"}


def test_what_the_workers_pods_ask_for_as_a_whole_is_theirs_alone():
    """The scheduler counts no such thing for servers and coordinator, which got it, too."""
    whole = with_template({"command": ["python", "x.py"]}, resources={"requests": {"cpu": "6"}})
    own = {"template": {"spec": {"containers": [{"image": "i"}], "resources": {"requests": {"cpu": "3"}}}}}
    for desired, expected in ((whole, None), (replace(whole, spec={**whole.spec, "servers": own}), "3")):
        asked = manifests.node_pod(desired, StartNode(Role.SERVER, 1), DEFAULTS, "10.96.0.9")["spec"].get("resources")
        assert asked == (expected and {"requests": {"cpu": expected}})
        assert "resources" not in pod_of(desired, StartCoordinator(1, Counts(2, 1)))["spec"]
    assert pod_of(whole, StartNode(Role.WORKER, 1))["spec"]["resources"] == {"requests": {"cpu": "6"}}


def test_a_job_that_is_saved_less_often_than_any_has_pods_all_the_same():
    rare = job(checkpoint={"url": "s3://b", "interval": "1000h"})
    words = container_of(pod_of(rare, StartCoordinator(1, Counts(2, 1))))["command"]
    assert words[words.index("--checkpoint-interval") + 1] == "2.592e+06"


NOTHING_SAID = with_template(
    {"command": ["/opt/python", "train.py"], "env": None, "volumeMounts": None, "securityContext": None},
    volumes=None,
    tolerations=None,
    initContainers=None,
    securityContext=None,
)
"""Fields with nothing behind their names, as `volumes:` in YAML: the API server takes them."""


def test_fields_with_nothing_behind_their_names_are_as_good_as_left_out():
    plain = with_template({"command": ["/opt/python", "train.py"]})
    for start in (StartCoordinator(1, Counts(2, 1)), StartNode(Role.WORKER, 1), StartNode(Role.SERVER, 1)):
        assert pod_of(NOTHING_SAID, start) == pod_of(plain, start)


def pod_of(desired, start):
    if isinstance(start, StartCoordinator):
        return manifests.coordinator_pod(desired, start, DEFAULTS)
    return manifests.node_pod(desired, start, DEFAULTS, "10.96.0.9")


@pytest.mark.parametrize("role", Role)
def test_a_node_is_told_its_machine(role):
    pod = manifests.node_pod(WHOLE, StartNode(role, 1), DEFAULTS, "10.96.0.9")
    machine = {"name": "ELASTIC_MACHINE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    assert machine in container_of(pod)["env"]


def test_a_coordinator_is_told_its_term_and_starts_again_in_its_pod():
    pod = manifests.coordinator_pod(WHOLE, StartCoordinator(4, Counts(2, 1)), DEFAULTS)
    command = container_of(pod)["command"]
    assert command[:4] == ["/opt/python", "-P", "-m", "coordinator"], "a coordinator.py beside the script hides none"
    assert command[command.index("--term") + 1] == "4"
    assert command[command.index("--checkpoint") + 1] == "/ckpt/digits-uid-1234"
    assert command[command.index("--checkpoint-interval") + 1] == "30"
    assert "--restore" not in command
    assert pod["spec"]["restartPolicy"] == "Always"
    assert "--replicas" not in command
    replicated = manifests.coordinator_pod(job(blockReplicas=1), StartCoordinator(1, Counts(2, 2)), DEFAULTS)
    command = container_of(replicated)["command"]
    assert command[command.index("--replicas") + 1] == "1"
    restored = manifests.coordinator_pod(WHOLE, StartCoordinator(5, Counts(2, 1), restore=True), DEFAULTS)
    command = container_of(restored)["command"]
    assert command[command.index("--restore") + 1] == "/ckpt/digits-uid-1234"


@pytest.mark.parametrize(
    "pod",
    [
        manifests.node_pod(WHOLE, StartNode(Role.WORKER, 1), DEFAULTS, "10.96.0.9"),
        manifests.node_pod(WHOLE, StartNode(Role.SERVER, 1), DEFAULTS, "10.96.0.9"),
        manifests.coordinator_pod(WHOLE, StartCoordinator(1, Counts(1, 1)), DEFAULTS),
    ],
)
def test_pods_may_as_little_as_training_needs(pod):
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    rights = container_of(pod)["securityContext"]
    assert (rights["readOnlyRootFilesystem"], rights["capabilities"]) == (True, {"drop": ["ALL"]})
    lost = [one for one in pod["spec"]["tolerations"] if one["key"] == "node.kubernetes.io/unreachable"]
    assert lost[0]["tolerationSeconds"] == 30
    assert container_of(pod)["image"] == "runtime:1"
    assert pod["metadata"]["ownerReferences"][0]["uid"] == WHOLE.uid


def test_a_template_may_say_otherwise():
    own = with_template({"command": ["python", "x.py"], "image": "mine:2"}, schedulerName="default-scheduler")
    pod = manifests.node_pod(own, StartNode(Role.WORKER, 1), DEFAULTS, "10.96.0.9")
    assert (container_of(pod)["image"], pod["spec"]["schedulerName"]) == ("mine:2", "default-scheduler")


def test_a_token_is_the_jobs_alone_and_known_without_reading_it():
    key = b"0123456789abcdef"
    first = manifests.token(key, job())
    assert bytes.fromhex(first) == bytes.fromhex(manifests.token(key, job()))
    assert len(bytes.fromhex(first)) == manifests.TOKEN_BYTES
    assert first != manifests.token(b"another key of it", job())
    assert manifests.secret(job(), first)["stringData"] == {"token": first}


@pytest.mark.parametrize(
    ("workers", "servers", "left"),
    [((2, 4), (1, 3), [2, 1]), ((2, 2), (1, 1), [1, 0]), ((3, 3), (2, 2), [2, 1]), ((1, 1), (1, 2), [0, 1])],
)
def test_evictions_leave_the_minimum_or_all_but_one(workers, servers, left):
    """So that a machine with the only server of a job can be drained: it hands over before it goes."""
    parts = {
        name: {**SPEC[name], "min": least, "replicas": count}
        for name, (least, count) in (("workers", workers), ("servers", servers))
    }
    assert [budget["spec"]["minAvailable"] for budget in manifests.budgets(job(**parts))] == left
    suspended = job(**parts, suspend=True)
    assert [budget["spec"]["minAvailable"] for budget in manifests.budgets(suspended)] == [0, 0]


def test_pods_meet_in_the_jobs_part_of_a_folder_only_where_the_document_names_one():
    shared = manifests.node_pod(
        job(sharedMemory={"hostPath": "/dev/shm/dl2"}), StartNode(Role.WORKER, 1), DEFAULTS, "10.96.0.9"
    )
    (folder,) = [volume for volume in shared["spec"]["volumes"] if "hostPath" in volume]
    assert folder["hostPath"]["path"] == "/dev/shm/dl2"
    (mount,) = [one for one in container_of(shared)["volumeMounts"] if one["name"] == folder["name"]]
    assert mount["subPath"] == "ns-digits-uid-1234"
    assert {"name": "ELASTIC_SHARED_MEMORY", "value": mount["mountPath"]} in container_of(shared)["env"]
    without = manifests.node_pod(job(), StartNode(Role.WORKER, 1), DEFAULTS, "10.96.0.9")
    assert not [volume for volume in without["spec"]["volumes"] if "hostPath" in volume]
    assert "ELASTIC_SHARED_MEMORY" not in str(without)
