"""Which cluster requests go to."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from dl2_scheduler.cluster.errors import BadInput
from k8s.foundation.api_server import APPLY, AlreadyExists, ApiUnavailable, Conflict, KubeApi, NotFound, Rejected


def kubeconfig(path, server="https://127.0.0.1:1", **namespaces):
    """With a context for each, the first of them in use."""
    contexts = [
        {"name": name, "context": {"cluster": "c", "user": "u", "namespace": namespace}}
        for name, namespace in namespaces.items()
    ]
    whole = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": next(iter(namespaces)),
        "contexts": contexts,
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path.write_text(yaml.safe_dump(whole))
    return path


def test_the_kubeconfig_is_the_one_that_is_named_now(tmp_path, monkeypatch):
    for name in ("one", "two"):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / name, first=name, second="other")))
        assert KubeApi().namespace == name
        assert KubeApi("second").namespace == "other"


def test_without_a_kubeconfig_it_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(BadInput, match="set KUBECONFIG, or give a --context"):
        KubeApi()


LOG = b"epoch 1\n\nna\xefve: 0.5\nno end"
"""A log with an empty line, and with a byte that is no UTF-8, as programs write in other encodings."""


class PlayedServer(BaseHTTPRequestHandler):
    """An API server that answers with the status which the path ends with, and tells what it was asked."""

    def _answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status = int(self.path.partition("?")[0].rpartition("/")[2])
        reason = self.path.split("/")[1]
        asked = {"verb": self.command, "path": self.path, "type": self.headers["Content-Type"], "body": body.decode()}
        data = json.dumps(asked if status == 200 else {"message": f"no: {status}", "reason": reason}).encode()
        data = {"cut": data[:-2], "page": b"<html>Log in", "list": b"[]", "log": LOG}.get(reason, data)
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def __getattr__(self, name):
        if not name.startswith("do_"):
            raise AttributeError(name)
        return self._answer

    def log_message(self, *_):
        pass


@pytest.fixture
def api(tmp_path, monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), PlayedServer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    where = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", where, here="ns")))
    yield KubeApi(call_seconds=10.0)
    server.shutdown()
    server.server_close()
    thread.join()


def test_requests_are_in_the_words_of_rest(api):
    asked = api.patch("/x/200", {"a": 1}, {"fieldManager": "dl2", "force": "true"}, APPLY)
    assert (asked["verb"], asked["type"]) == ("PATCH", "application/apply-patch+yaml")
    assert asked["path"] == "/x/200?fieldManager=dl2&force=true"
    assert json.loads(asked["body"]) == {"a": 1}
    assert api.replace("/x/200", {})["verb"] == "PUT"
    assert api.create("/x/200", {}, {"dryRun": "All"})["verb"] == "POST"
    api.delete("/x/200", {"gracePeriodSeconds": 0})
    assert api.requests == 4


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, NotFound), (409, Conflict), (403, Rejected), (422, Rejected), (429, ApiUnavailable), (503, ApiUnavailable)],
)
def test_a_refusal_has_its_status_and_the_servers_words(api, status, kind):
    with pytest.raises(kind, match=f"no: {status}") as caught:
        api.get(f"/x/{status}")
    assert type(caught.value) is kind
    assert caught.value.status == status


def test_a_conflict_with_an_object_that_is_there_is_told_from_others(api):
    with pytest.raises(AlreadyExists, match="no: 409"):
        api.create("/AlreadyExists/409", {})


@pytest.mark.parametrize("what", ["cut", "page", "list"])
def test_an_answer_that_is_no_object_is_none(api, what):
    with pytest.raises(ApiUnavailable, match="what answers for the API server is no"):
        api.get(f"/{what}/200")
    with pytest.raises(ApiUnavailable, match="what answers for the API server is no"):
        list(api.watch(f"/{what}/200", {}))


def test_a_log_is_what_the_program_wrote(api):
    assert list(api.lines("/log/200", {})) == ["epoch 1", "", "na\ufffdve: 0.5", "no end"]


@pytest.mark.parametrize(("follow", "seconds"), [("true", None), ("false", 120.0)])
def test_a_log_that_is_followed_may_be_silent_for_long(api, monkeypatch, follow, seconds):
    send, bounds = api._send, []
    monkeypatch.setattr(api, "_send", lambda *asked: bounds.append(asked[-1].read_timeout) or send(*asked))
    list(api.lines("/log/200", {"follow": follow}))
    assert bounds == [seconds]


def test_a_server_that_is_not_there_is_unavailable(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", "http://127.0.0.1:1", here="ns")))
    with pytest.raises(ApiUnavailable, match="does not answer") as caught:
        KubeApi().get("/x/200")
    assert caught.value.status == 0
