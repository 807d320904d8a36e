"""This module sends requests to the API server, in the words of its REST interface; tests have a played one.

ApiError
├── NotFound      there is no such object
├── Conflict      somebody else wrote the object, or a quota, meanwhile, or its pod is bound already: ask again
│   └── AlreadyExists   an object of this name is there
├── Gone          a watch asks for what the server has forgotten: list again
├── Rejected      the server will not do it: the message says why
└── ApiUnavailable   it does not answer, or is too busy: ask again later
"""

import json
import os
import ssl
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

import urllib3
from kubernetes import client, config
from kubernetes.config import ConfigException

from dl2_scheduler.cluster.errors import BadInput, SchedulerError
from elastic_ps.system.bounded_files import read_bytes
from elastic_ps.system.printable import one_line
from k8s.foundation.names import GROUP, PLURAL, VERSION

GROUP_PATH = f"/apis/{GROUP}/{VERSION}"
JOBS_PATH = f"{GROUP_PATH}/{PLURAL}"
NODES_PATH = "/api/v1/nodes"
PODS_PATH = "/api/v1/pods"

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
STRATEGIC = "application/strategic-merge-patch+json"
_JSON = "application/json"

CALL_SECONDS = 10.0
_SILENCE_SECONDS = 120.0  # of a watch: the server sends a bookmark about every minute
CONNECTIONS = 32
_SAME_TOKEN_SECONDS = 10.0  # to look at it costs more than a small request: the library reads its settings anew


class ApiError(SchedulerError):
    """The API server did not do what was asked.

    Args:
        message: for people.
        status: of its answer by HTTP; 0: there was none.
    """

    def __init__(self, message: str, status: int = 0):
        super().__init__(message)
        self.status = status


class NotFound(ApiError):
    """There is no such object."""


class Conflict(ApiError):
    """It is other than the request says."""


class AlreadyExists(Conflict):
    """There is an object of its name."""


class Gone(ApiError):
    """A watch asks for what has been forgotten."""


class Rejected(ApiError):
    """It will not do it."""


class ApiUnavailable(ApiError):
    """It does not answer now."""


Query = Mapping[str, str | int]


class ApiServer(Protocol):
    """An `ApiServer` answers for one cluster. It is safe from several threads. Every method raises ApiError."""

    def get(self, path: str, query: Query | None = None) -> dict[str, Any]:
        """Read an object, or a list of them."""

    def create(self, path: str, body: Mapping[str, Any], query: Query | None = None) -> dict[str, Any]:
        """Make an object.

        Args:
            path: of the list that it comes into.
            body: the object.
            query: as in {"fieldManager": NAME}.
        """

    def replace(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Write an object as a whole."""

    def patch(
        self, path: str, body: Mapping[str, Any], query: Query | None = None, kind: str = MERGE
    ) -> dict[str, Any]:
        """Change parts of an object.

        Args:
            path: of the object.
            body: the parts.
            query: as in {"fieldManager": NAME}.
            kind: how lists are merged: MERGE, STRATEGIC or APPLY.
        """

    def delete(self, path: str, body: Mapping[str, Any] | None = None) -> None:
        """Let an object go.

        Args:
            path: of the object.
            body: DeleteOptions.
        """

    def watch(self, path: str, query: Query) -> Generator[dict[str, Any], None, None]:
        """Yield events as they come, until the server ends the watch. Closing the generator ends it."""

    def lines(self, path: str, query: Query) -> Generator[str, None, None]:
        """Yield lines of a log as they come; one that is followed may say nothing for as long as it likes."""


def job_path(namespace: str, name: str) -> str:
    """Return the path of an ElasticJob."""
    return f"{GROUP_PATH}/namespaces/{namespace}/{PLURAL}/{name}"


class KubeApi:
    """A `KubeApi` is the real API server; see `ApiServer`.

    Args:
        context: of the kubeconfig; None: the present one.
        in_cluster: fall back on the service account of the pod that this runs in, where there is no kubeconfig.
        call_seconds: how long a request may take; a watch or a log may only take so long to begin.

    Attributes:
        namespace: that the context names.
        requests: made so far, watches too.

    Raises:
        BadInput: there is no kubeconfig, or no such context.
    """

    def __init__(self, context: str | None = None, in_cluster: bool = False, call_seconds: float = CALL_SECONDS):
        settings, self.namespace = configure(context, in_cluster)
        settings.connection_pool_maxsize = CONNECTIONS
        self._client = client.ApiClient(settings)
        self._call_seconds = call_seconds
        self._host = settings.host.rstrip("/")
        self._lock = threading.Lock()
        self._token: dict[str, str] = {}
        self._token_until = 0.0
        self.requests = 0

    def get(self, path: str, query: Query | None = None) -> dict[str, Any]:
        """See `ApiServer.get`."""
        return self._call("GET", path, query)

    def create(self, path: str, body: Mapping[str, Any], query: Query | None = None) -> dict[str, Any]:
        """See `ApiServer.create`."""
        return self._call("POST", path, query, body)

    def replace(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """See `ApiServer.replace`."""
        return self._call("PUT", path, None, body)

    def patch(
        self, path: str, body: Mapping[str, Any], query: Query | None = None, kind: str = MERGE
    ) -> dict[str, Any]:
        """See `ApiServer.patch`."""
        return self._call("PATCH", path, query, body, kind)

    def delete(self, path: str, body: Mapping[str, Any] | None = None) -> None:
        """See `ApiServer.delete`."""
        self._call("DELETE", path, None, body)

    def watch(self, path: str, query: Query) -> Generator[dict[str, Any], None, None]:
        """See `ApiServer.watch`."""
        with closing(self._lines(path, {**query, "watch": "true"}, _SILENCE_SECONDS)) as lines:
            for line in lines:
                if line:
                    yield _read(line)

    def lines(self, path: str, query: Query) -> Generator[str, None, None]:
        """See `ApiServer.lines`."""
        return self._lines(path, query, None if query.get("follow") == "true" else _SILENCE_SECONDS)

    def _lines(self, path: str, query: Query, silence: float | None) -> Generator[str, None, None]:
        """Yield lines as they come. What a program writes need not be UTF-8."""
        timeout = urllib3.Timeout(connect=self._call_seconds, read=silence)
        with _network():
            response = self._send("GET", path, query, None, _JSON, timeout)
        try:
            _check(response)
            rest = b""
            with _network():
                for part in response.stream(2**16, decode_content=True):
                    *whole, rest = (rest + part).split(b"\n")
                    yield from (line.decode(errors="replace") for line in whole)
            if rest:
                yield rest.decode(errors="replace")
        finally:
            response.close()  # not released: what is left of a watch is no one's

    def _call(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: Mapping[str, Any] | None = None,
        kind: str = _JSON,
    ) -> dict[str, Any]:
        with _network():
            response = self._send(method, path, query, body, kind, urllib3.Timeout(total=self._call_seconds))
            data = response.data
        _check(response)
        return _read(data)

    def _send(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: Mapping[str, Any] | None,
        kind: str,
        timeout: urllib3.Timeout,
    ) -> urllib3.BaseHTTPResponse:
        with self._lock:
            self.requests += 1
            headers = {"Accept": _JSON, "Content-Type": kind, "User-Agent": "dl2", **self._who()}
        text = urlencode({key: str(value) for key, value in (query or {}).items()})
        response: urllib3.BaseHTTPResponse = self._client.rest_client.pool_manager.request(
            method,
            f"{self._host}{path}{'?' + text if text else ''}",
            body=None if body is None else json.dumps(body).encode(),
            headers=headers,
            timeout=timeout,
            retries=False,
            preload_content=False,
        )
        if response.status == 401:
            self._token_until = 0.0
        return response

    def _who(self) -> Mapping[str, str]:
        """Return the headers that say who asks; a token changes now and then, and may come of a program."""
        if time.monotonic() >= self._token_until:
            self._token = {}
            self._client.update_params_for_auth(self._token, [], ["BearerToken"], "", "GET", None)
            self._token_until = time.monotonic() + _SAME_TOKEN_SECONDS
        return self._token


def configure(context: str | None, in_cluster: bool = False) -> tuple[Any, str]:
    """Return how to reach a cluster, as the kubernetes client takes it, and the namespace; see `KubeApi`.

    Args:
        context: of the kubeconfig; None: the present one.
        in_cluster: fall back on the service account of the pod that this runs in, where there is no kubeconfig.

    Raises:
        BadInput: there is no kubeconfig, or no such context.
    """
    settings = client.Configuration()
    file = os.environ.get("KUBECONFIG") or None  # said here, as the library looks when it is imported only
    try:
        for part in (file or "").split(os.pathsep):
            if part and Path(part).exists():
                read_bytes(part)  # not a device, nor a pipe
        config.load_kube_config(file, context, settings)
        contexts, active = config.list_kube_config_contexts(file)
        used = next((each for each in contexts if each["name"] == context), active)
        return settings, used["context"].get("namespace") or "default"
    except Exception as error:  # of a file that is no kubeconfig the library raises whatever comes first
        if isinstance(error, ConfigException | OSError) and context is None and in_cluster and _ACCOUNT.exists():
            config.load_incluster_config(client_configuration=settings)
            return settings, (_ACCOUNT / "namespace").read_text().strip()
        why = one_line(str(error))[:300] or type(error).__name__
        raise BadInput(f"no Kubernetes cluster: {why}; set KUBECONFIG, or give a --context of it") from error


_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@contextmanager
def _network() -> Iterator[None]:
    """Turn foreign errors into ApiUnavailable."""
    try:
        yield
    except (urllib3.exceptions.HTTPError, OSError, ssl.SSLError) as error:
        raise ApiUnavailable(f"the API server does not answer: {error}") from error


def _read(data: str | bytes) -> dict[str, Any]:
    """Return the object of an answer. Raises ApiUnavailable: it was cut off, or is a page of whoever stands between."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ApiUnavailable(f"what answers for the API server is not understood: {data[:100]!r}") from error
    if not isinstance(found, dict):
        raise ApiUnavailable(f"what answers for the API server is no object: {data[:100]!r}")
    return found


def _check(response: urllib3.BaseHTTPResponse) -> None:
    if 200 <= response.status < 300:
        return
    with _network():
        text = response.data.decode(errors="replace")
    try:
        said = json.loads(text)
        message, reason = said["message"], said.get("reason", "")
    except (ValueError, KeyError, TypeError):
        message, reason = text.strip() or str(response.reason), ""
    raise error_of(response.status, message, reason)


def error_of(status: int, message: str, reason: str = "") -> ApiError:
    """Return the error that an answer tells of; an event of a watch may tell of one, too.

    Args:
        status: of HTTP.
        message: for people.
        reason: one word of Kubernetes' own; "": it has said none.
    """
    if status == 409 and reason == "AlreadyExists":
        return AlreadyExists(message, status)
    kinds: dict[int, type[ApiError]] = {404: NotFound, 409: Conflict, 410: Gone, 429: ApiUnavailable}
    return kinds.get(status, ApiUnavailable if status >= 500 else Rejected)(message, status)
