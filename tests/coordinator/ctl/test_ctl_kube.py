"""`elasticctl --kube`: a plug-in, which asks the API server; here a played one."""

import errno
import json
import os
import sys
from importlib.metadata import EntryPoint, entry_points

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.stream.ws_client import ERROR_CHANNEL
from typer.main import get_command
from typer.testing import CliRunner
from websocket import WebSocketConnectionClosedException

from coordinator.ctl import cli
from k8s import ctl, within


def job(name="digits", scaling="Manual", **status):
    roles = {role: {"replicas": 2, "min": 1, "max": 4} for role in ("workers", "servers")}
    spec = {"scaling": scaling, **roles}
    return {"metadata": {"name": name, "uid": f"uid-of-{name}", "resourceVersion": "1"}, "spec": spec, "status": status}


class PlayedPods:
    """kubernetes' CoreV1Api: one job's coordinator and one server, and pods of others with the same labels."""

    def __init__(self):
        self.deleted = []

    def list_namespaced_pod(self, namespace, label_selector, **_):
        role = "coordinator" if "role=coordinator" in label_selector else "server-1"
        labels = {"dl2.scheduler/node": "s0"} if role == "server-1" else {}
        owner = client.V1OwnerReference(
            api_version="dl2.scheduler/v1alpha1", kind="ElasticJob", name="digits", uid="uid-of-digits"
        )
        mesh = client.V1Container(name="istio-proxy", command=["/bin/pilot"])
        container = client.V1Container(name="main", command=["/opt/python", "-m", "coordinator"])
        found = (("foreign", None), (f"digits-{role}", [owner]))
        metas = [
            client.V1ObjectMeta(name=name, namespace=namespace, labels=labels, owner_references=owners)
            for name, owners in found
        ]
        spec = client.V1PodSpec(containers=[mesh, container])
        return client.V1PodList(items=[client.V1Pod(metadata=meta, spec=spec) for meta in metas])

    def delete_namespaced_pod(self, name, namespace, **_):
        self.deleted.append((namespace, name))

    def connect_get_namespaced_pod_exec(self):
        raise AssertionError("it is streamed")


class PlayedExec:
    """What a command in a pod prints, and its status."""

    def __init__(self, out, said):
        self.out, self.said, self.closed = [out, ""], said, False

    def is_open(self):
        return bool(self.out)

    def update(self, timeout):
        assert timeout

    def peek_stdout(self):
        return self.out[0]

    def read_stdout(self):
        return self.out[0]

    def peek_stderr(self):
        self.out.pop(0)
        return ""

    def read_stderr(self):
        return ""

    def read_channel(self, channel):
        assert channel == ERROR_CHANNEL
        return self.said

    def close(self):
        self.closed = True


def ended_with(status):
    """As the API server says it."""
    causes = [{"reason": "ExitCode", "message": str(status)}]
    failed = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    return json.dumps(failed if status else {"status": "Success"})


class PlayedObjects:
    """kubernetes' CustomObjectsApi."""

    def __init__(self, *jobs):
        self.jobs = {each["metadata"]["name"]: each for each in jobs}
        self.patches = []
        self.conflicts = 0

    def delete_namespaced_custom_object(self, *words, **_):
        del self.jobs[words[-1]]

    def list_namespaced_custom_object(self, *place, **_):
        return {"items": list(self.jobs.values())}

    def get_namespaced_custom_object(self, *words, **_):
        if words[-1] not in self.jobs:
            error = ApiException(status=404, reason="Not Found")
            error.body = json.dumps({"message": f'elasticjobs "{words[-1]}" not found'})
            raise error
        return self.jobs[words[-1]]

    def patch_namespaced_custom_object(self, *words, **_):
        *_, name, body = words
        if self.conflicts:
            self.conflicts -= 1
            raise ApiException(status=409, reason="Conflict")
        self.patches.append(body)
        for role, counts in body["spec"].items():
            self.jobs[name]["spec"][role] |= counts
        return self.jobs[name]


@pytest.fixture
def served(monkeypatch):
    """Makes the API server; returns what runs a command on it."""

    def serve(*jobs):
        played, pods = PlayedObjects(*jobs), PlayedPods()

        class Jobs(ctl._Jobs):
            def __init__(self, context, namespace):
                self._api, self._place = played, ("g", "v", namespace or "default", "p")
                self._core = pods

        monkeypatch.setattr(ctl, "_Jobs", Jobs)

        def run(*words, status=0):
            found = CliRunner().invoke(ctl.app, words)
            assert found.exit_code == status, found.output
            return found.output

        run.played, run.pods = played, pods
        return run

    return serve


def test_counts_are_written_into_the_document_with_the_version_that_was_read(served):
    run = served(job())
    assert "4 workers and 2 servers" in run("scale", "digits", "--workers", "4")
    assert run.played.patches == [{"metadata": {"resourceVersion": "1"}, "spec": {"workers": {"replicas": 4}}}]
    run.played.conflicts = 2
    assert json.loads(run("scale", "digits", "--servers", "3", "--json")) == {
        "job": "digits",
        "workers": 4,
        "servers": 3,
    }


def test_what_the_scheduler_holds_is_refused(served):
    run = served(job(scaling="Scheduler"))
    assert "held by the scheduler; dl2 hold digits --kube first" in run("scale", "digits", "--workers", "4", status=5)
    assert run.played.patches == []


def test_conflicts_for_ever_are_given_up(served):
    run = served(job())
    run.played.conflicts = 99
    assert "try again" in run("scale", "digits", "--workers", "4", status=1)


def test_what_is_missing_or_unknown(served):
    run = served(job())
    assert "--workers N, --servers M" in run("scale", "digits", status=2)
    assert '"other" not found' in run("status", "other", status=3)


def test_status_jobs_and_plans_are_what_the_operator_wrote(served):
    plan = {"id": 3, "phase": "COMMITTED", "cause": "operator-controller: 4+2", "seconds": 0.4, "suspension": 0.05}
    condition = {"type": "Running", "status": "True", "reason": "Trains", "message": ""}
    status = {"phase": "Running", "workers": 2, "servers": 1, "epoch": 4.5, "metrics": {"loss": 0.25}}
    run = served(job(**status, plans=[plan], conditions=[condition]))
    shown = run("status", "digits").splitlines()
    assert [line.split() for line in shown] == [
        ["phase", "Running"],
        ["workers", "2"],
        ["servers", "1"],
        ["epoch", "4.50"],
        ["metrics", "loss", "0.25"],
        ["Running", "True:", "Trains"],
    ]
    assert json.loads(run("plans", "digits", "--json")) == {"plans": [plan]}
    assert "COMMITTED" in run("plans", "digits")
    assert json.loads(run("jobs", "--json"))["jobs"][0]["phase"] == "Running"
    assert "digits" in run("jobs")


@pytest.mark.parametrize(
    ("words", "inside"),
    [
        (("ledger", "digits"), ["ledger"]),
        (("audit", "digits", "--json"), ["audit", "--json"]),
        (("checkpoint", "digits", "--url", "memory://x"), ["checkpoint", "--url", "memory://x"]),
        (("evict", "digits", "w1"), ["evict", "w1"]),
        (("cancel", "digits"), ["cancel"]),
        (("watch", "digits"), ["watch"]),
    ],
)
@pytest.mark.parametrize("status", [0, 1, 5])
def test_what_only_the_coordinator_knows_is_asked_in_its_pod(served, monkeypatch, words, inside, status):
    asked = []

    def stream(method, name, namespace, container, command, **_):
        assert container == "main", "another one was added to the pod"
        asked.append((name, namespace, command))
        return PlayedExec("as it says\n", ended_with(status))

    monkeypatch.setattr(within, "stream", stream)
    assert served(job())(*words, "--namespace", "ours", status=status) == "as it says\n"
    ((name, namespace, command),) = asked
    assert (name, namespace) == ("digits-coordinator", "ours")
    assert command[:3] == ["/opt/python", "-P", "-c"]
    here = ["--coordinator", "127.0.0.1:7000", "--token-file", "/var/run/dl2/token"]
    assert command[4:] == [*inside, *here]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("", "it has ended, or its node is lost"),
        (json.dumps({"status": "Failure", "message": 'exec: "/opt/python": no such file'}), "no such file"),
        ("no JSON", "no JSON"),
    ],
)
def test_a_pod_that_does_not_say_how_a_command_ended_is_told_of(served, monkeypatch, said, words):
    monkeypatch.setattr(within, "stream", lambda *_, **__: PlayedExec("", said))
    shown = served(job())("watch", "digits", status=4)
    assert "digits-coordinator does not say how the command ended" in shown
    assert words in shown


def test_a_connection_with_a_pod_that_breaks_is_told_of(served, monkeypatch):
    def cut(self, timeout):
        raise WebSocketConnectionClosedException("Connection to remote host was lost.")

    monkeypatch.setattr(PlayedExec, "update", cut)
    monkeypatch.setattr(within, "stream", lambda *_, **__: PlayedExec("", ""))
    assert "the connection with digits-coordinator was cut off" in served(job())("watch", "digits", status=4)


KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: c
"""


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        (KUBECONFIG, 4, "the API server does not answer"),
        ("a: [b", 1, "no Kubernetes cluster"),
        ("hello", 1, "no Kubernetes cluster"),
    ],
)
def test_a_cluster_that_is_not_there_is_told_of(tmp_path, monkeypatch, text, status, words):
    (tmp_path / "config").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    found = CliRunner().invoke(ctl.app, ["jobs"])
    assert (found.exit_code, words in found.output) == (status, True), found.output


def test_a_node_is_drained_by_the_deletion_of_its_pod(served):
    run = served(job())
    assert "s0 drains" in run("drain", "digits", "s0", "--namespace", "ours")
    assert run.pods.deleted == [("ours", "digits-server-1")]
    assert "digits has no node w7: it has s0" in run("drain", "digits", "w7", status=5)


def test_a_job_is_stopped_by_the_deletion_of_its_object(served):
    run = served(job())
    assert run("stop", "digits") == "digits is stopping\n"
    assert run.played.jobs == {}


def test_what_drains_and_stops_is_told_to_programs(served):
    run = served(job())
    drained = {"job": "digits", "node": "s0", "pod": "digits-server-1"}
    assert json.loads(run("drain", "digits", "s0", "--json")) == drained
    assert json.loads(run("stop", "digits", "--json")) == {"job": "digits", "stopping": True}


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC])
def test_no_api_server_is_blamed_for_what_cannot_be_printed(served, monkeypatch, number):
    """As in `elasticctl --kube jobs | head`."""
    served(job())

    def say(_line, err=False):
        if not err:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(ctl, "say", say)
    found = CliRunner().invoke(ctl.app, ["stop", "digits"])
    assert (found.exit_code, found.output) == (1, "")


UNKNOWN_TO_KUBE = {
    "jobs": {"--all"},
    "cancel": {"--plan"},
    "watch": {"--interval"},
    "stop": {"--now"},
    "scale": {"--dry-run", "--mode", "--no-wait", "--detach"},
    "drain": {"--no-wait", "--detach"},
    "export": {"--from", "--output", "-o", "--json"},
}
"""What docs/reference/cli.md says that --kube lacks."""


def test_options_are_those_without_kube_but_for_what_the_page_says():
    own, on_kube = get_command(cli.app).commands, get_command(ctl.app).commands
    for name, command in own.items():
        given, there = ({word for each in found.params for word in each.opts} for found in (command, on_kube[name]))
        lacking = {word for word in given - there if word.startswith("-")} - {"--coordinator", "--token-file"}
        assert lacking == UNKNOWN_TO_KUBE.get(name, set()), name


@pytest.mark.parametrize(
    "command", [["stop", ""], ["stop", " "], ["status", ""], ["drain", "", "s0"], ["drain", "digits", ""]]
)
def test_an_empty_name_is_that_of_no_job(served, command):
    """The API server takes a deletion without a name for that of every job of the namespace."""
    run = served(job())
    assert "an empty name: give one" in run(*command, status=2)
    assert run.played.jobs
    assert run.pods.deleted == []


def test_every_verb_of_elasticctl_is_there():
    assert set(get_command(cli.app).commands) <= set(get_command(ctl.app).commands)


def test_elasticctl_hands_over_to_the_plug_in(monkeypatch):
    asked = []
    monkeypatch.setattr(ctl, "main", lambda: asked.append(sys.argv[1:]))
    plug_in = EntryPoint("kube", "k8s.ctl:main", "elasticctl.kube")
    monkeypatch.setattr(cli, "entry_points", lambda group: [plug_in] if group == plug_in.group else [])
    monkeypatch.setattr(sys, "argv", ["elasticctl", "--kube", "jobs"])
    cli.main()
    assert asked == [["jobs"]]


def test_without_the_plug_in_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(cli, "entry_points", lambda group: [])
    monkeypatch.setattr(sys, "argv", ["elasticctl", "jobs", "--kube"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "pip install '/path/to/checkout[kubernetes]'" in capsys.readouterr().err


def test_the_plug_in_is_registered():
    assert [found.value for found in entry_points(group="elasticctl.kube")] == ["k8s.ctl:main"]
