"""This module runs commands of elasticctl in a job's pod, by the API server's exec, for `elasticctl --kube`."""

import json
import sys

from kubernetes import client
from kubernetes.stream import stream
from kubernetes.stream.ws_client import ERROR_CHANNEL
from websocket import WebSocketException

from k8s.elastic_operator.job.manifests import TOKEN_FILE
from k8s.elastic_operator.job.model import PORT
from k8s.foundation.names import MAIN, NODE_LABEL

_CALL_SECONDS = 10
_LOOK_SECONDS = 1.0
_ELASTICCTL = "from coordinator.ctl.cli import main; main()"


class NotHeardOut(Exception):
    """It is not known how a command in a pod ended, or it did not begin; the message says why."""


class JobPod:
    """A `JobPod` is one pod of a job.

    Args:
        core: connection to the API server.
        pod: as the API server has it.
    """

    def __init__(self, core: "client.CoreV1Api", pod: client.V1Pod):
        meta = pod.metadata or client.V1ObjectMeta()
        self._core, self._pod = core, pod
        self.name, self._namespace = str(meta.name), str(meta.namespace)
        self.node = str((meta.labels or {}).get(NODE_LABEL, ""))

    def delete(self) -> None:
        """Delete the pod; what it holds is handed over before it goes."""
        self._core.delete_namespaced_pod(self.name, self._namespace, _request_timeout=_CALL_SECONDS)

    def run(self, words: list[str]) -> int:
        """Run a command of elasticctl in a coordinator's pod, print here what it prints, and return its exit status.

        Raises:
            NotHeardOut: the pod has ended meanwhile, or cannot run it.
        """
        assert self._pod.spec is not None, "every pod has a spec"
        commands = (each.command for each in self._pod.spec.containers if each.name == MAIN and each.command)
        python = next(commands, ["python"])[0]
        verb, *rest = words
        here = ["--coordinator", f"127.0.0.1:{PORT}", "--token-file", TOKEN_FILE]
        found = stream(
            self._core.connect_get_namespaced_pod_exec,
            self.name,
            self._namespace,
            container=MAIN,
            command=[python, "-P", "-c", _ELASTICCTL, verb, *rest, *here],
            stdout=True,
            stderr=True,
            stdin=False,
            tty=False,
            _preload_content=False,
        )
        try:
            while found.is_open():
                found.update(timeout=_LOOK_SECONDS)
                for ready, read, out in (
                    (found.peek_stdout, found.read_stdout, sys.stdout),
                    (found.peek_stderr, found.read_stderr, sys.stderr),
                ):
                    if ready():
                        out.write(read())
                        out.flush()
            return _exit_status(found.read_channel(ERROR_CHANNEL), self.name)
        except WebSocketException as error:
            raise NotHeardOut(f"the connection with {self.name} was cut off: {error}") from error
        finally:
            found.close()


def _exit_status(said: str, pod: str) -> int:
    """Return the exit status of a command, as the API server tells it when the command has ended.

    Args:
        said: a Status of Kubernetes, as JSON; "": nothing was said.
        pod: its name.

    Raises:
        NotHeardOut: there is none.
    """
    try:
        told = json.loads(said)
        if told["status"] == "Success":
            return 0
        return next(int(cause["message"]) for cause in told["details"]["causes"] if cause.get("reason") == "ExitCode")
    except (ValueError, KeyError, TypeError, StopIteration):
        why = said.strip() or "it has ended, or its node is lost: when the job's coordinator is back, ask again"
        raise NotHeardOut(f"{pod} does not say how the command ended: {why}") from None
