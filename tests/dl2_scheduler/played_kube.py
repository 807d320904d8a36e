"""An API server in a test's hand, and an operator that makes jobs of it train at once."""

import copy
import queue
import threading
from datetime import UTC, datetime

from dl2_scheduler.backends.kube.apiserver.object_reading import job_of, node_of, pod_of
from k8s.foundation.api_server import AlreadyExists, Conflict, Gone, NotFound
from tests.dl2_scheduler.played_cluster import SAMPLES

JOBS = "/apis/dl2.scheduler/v1alpha1/namespaces/{}/elasticjobs"
END = object()


def merged(old, new):
    """A merge patch."""
    if not isinstance(new, dict):
        return copy.deepcopy(new)
    made = dict(old) if isinstance(old, dict) else {}
    for key, value in new.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merged(made.get(key), value)
    return made


class PlayedApi:
    """Objects by their path. Faults are scripted: `fail` is a list of errors that the next calls meet.

    `calls` tells what was asked.
    """

    def __init__(self):
        self.lock = threading.RLock()
        self.heard = threading.Condition(self.lock)  # told when a watcher has taken all that it was told so far
        self.objects = {}
        self.version = 0
        self.calls = []
        self.fail = []
        self.log = []  # of events: (version, path of the object, event)
        self.forgotten = 0  # versions up to here cannot be watched from
        self.watches = []
        self.before_write = lambda path: None
        self.after_patch = lambda: None

    # ---- what a test does ------------------------------------------------------------------------------------------

    def put(self, path, found):
        """Make or replace an object, as anybody would."""
        with self.lock:
            self.version += 1
            found = merged(found, {"metadata": {"resourceVersion": str(self.version)}})
            kind = "MODIFIED" if path in self.objects else "ADDED"
            self.objects[path] = found
            self._tell(kind, path, found)
            return found

    def drop(self, path):
        with self.lock:
            self.version += 1
            found = merged(self.objects.pop(path), {"metadata": {"resourceVersion": str(self.version)}})
            self._tell("DELETED", path, found)

    def add(self, folder, *each):
        for found in each:
            self.put(f"{folder}/{found['metadata']['name']}", found)

    def end_watches(self, error=None):
        """All that are open, as a server does that restarts."""
        with self.lock:
            for _, events in self.watches:
                events.put(error or END)
            self.watches = []

    def bookmark(self):
        with self.lock:
            self.version += 1
            for _, events in self.watches:
                found = {"metadata": {"resourceVersion": str(self.version)}}
                events.put({"type": "BOOKMARK", "object": found})

    def until(self, holds):
        """Wait until it does: it is asked whenever a watcher has taken what it was told."""
        with self.heard:
            assert self.heard.wait_for(holds, 10), "it does not come to hold"

    def _tell(self, kind, path, found):
        event = {"type": kind, "object": found}
        self.log.append((self.version, path, event))
        for folder, events in self.watches:
            if _in(path, folder):
                events.put(event)

    # ---- see ApiServer -----------------------------------------------------------------------------------------------

    def _asked(self, verb, path, body=None):
        self.calls.append((verb, path, body))
        if self.fail:
            error = self.fail.pop(0)
            if error is not None:
                raise error

    def get(self, path, query=None):
        self._asked("get", path)
        with self.lock:
            if path in self.objects:
                return copy.deepcopy(self.objects[path])
            if not _is_folder(path):
                raise NotFound(f"no {path}")
            items = [found for each, found in sorted(self.objects.items()) if _in(each, path)]
            return {"items": copy.deepcopy(items), "metadata": {"resourceVersion": str(self.version)}}

    def create(self, path, body, query=None):
        self._asked("create", path, body)
        with self.lock:
            if path.endswith("/binding"):
                return self._bind(path.removesuffix("/binding"), body)
            name = f"{path}/{body['metadata']['name']}"
            if name in self.objects:
                raise AlreadyExists(f"{body['metadata']['name']} already exists")
            namespace = path.split("/namespaces/")[1].split("/")[0] if "/namespaces/" in path else None
            return self.put(name, merged(body, {"metadata": {"uid": f"made-{self.version}", "namespace": namespace}}))

    def _bind(self, path, body):
        found = self.objects.get(path)
        if found is None:
            raise NotFound(path)
        if found["metadata"]["uid"] != body["metadata"]["uid"] or found["spec"].get("nodeName"):
            raise Conflict(f"pod {path} is already assigned to node {found['spec'].get('nodeName')}")
        return self.put(path, merged(found, {"spec": {"nodeName": body["target"]["name"]}}))

    def replace(self, path, body):
        self._asked("replace", path, body)
        with self.lock:
            self.before_write(path)
            if body["metadata"]["resourceVersion"] != self.objects[path]["metadata"]["resourceVersion"]:
                raise Conflict("the object has been modified")
            return self.put(path, body)

    def patch(self, path, body, query=None, kind=None):
        self._asked("patch", path, body)
        path = path.removesuffix("/status")
        with self.lock:
            self.before_write(path)
            if path not in self.objects:
                raise NotFound(path)
            old = self.objects[path]
            wanted = body.get("metadata", {})
            if any(wanted.get(key, old["metadata"][key]) != old["metadata"][key] for key in ("resourceVersion", "uid")):
                raise Conflict("the object has been modified")
            written = self.put(path, merged(old, body))
        self.after_patch()
        return written

    def delete(self, path, body=None):
        self._asked("delete", path, body)
        with self.lock:
            if path not in self.objects:
                raise NotFound(f"{path} not found")
            uid = (body or {}).get("preconditions", {}).get("uid")
            if uid and uid != self.objects[path]["metadata"]["uid"]:
                raise Conflict("another has its name")
            self.drop(path)

    def watch(self, path, query):
        self._asked("watch", path)
        since = int(query["resourceVersion"])
        events = queue.Queue()
        with self.lock:
            if since < self.forgotten:
                raise Gone("too old resource version")
            for version, each, event in self.log:
                if version > since and _in(each, path):
                    events.put(event)
            self.watches.append((path, events))
        while (event := self._next(events)) is not END:
            if isinstance(event, Exception):
                raise event
            yield event

    def _next(self, events):
        with self.lock:
            self.heard.notify_all()
        return events.get()

    def lines(self, path, query):
        self._asked("lines", path, query)
        yield from ("first", "second")


def _is_folder(path):
    return path.rpartition("/")[2] in (
        "nodes",
        "pods",
        "elasticjobs",
        "events",
        "leases",
        "persistentvolumeclaims",
    )


def _in(path, folder):
    """Whether an object is in a list: of its namespace, or of all."""
    parent, kind = path.rpartition("/")[0], folder.rpartition("/")[2]
    return parent == folder or ("/namespaces/" not in folder and parent.rpartition("/")[2] == kind and path != folder)


class PlayedView:
    """The server's objects as they are, without a watch; see `binder.View`."""

    def __init__(self, api, tended=lambda: None):
        self.api = api
        self.tended = tended

    def _all(self, kind, read):
        self.tended()
        with self.api.lock:
            return [read(found) for path, found in self.api.objects.items() if path.split("/")[-2] == kind]

    def nodes(self):
        return self._all("nodes", node_of)

    def pods(self):
        return self._all("pods", pod_of)

    def jobs(self):
        return self._all("elasticjobs", job_of)


class PlayedOperator:
    """Jobs have at once what `spec.allocation` says, and train min(workers, servers) samples a second."""

    def __init__(self, api, clock, namespace="default"):
        self.api = api
        self.clock = clock
        self.folder = JOBS.format(namespace)
        self.since = {}

    def tend(self):
        """Make every job's status true as of now."""
        now = self.clock.now()
        for path, found in list(self.api.objects.items()):
            if path.startswith(self.folder) and found.get("status", {}).get("phase") != "Completed":
                self._tend(path, found, now)

    def _tend(self, path, found, now):
        status, epochs = dict(found.get("status", {})), found["spec"]["epochs"]
        had = status.get("workers", 0), status.get("servers", 0)
        rate = min(had) / SAMPLES
        status["epoch"] = min(epochs, status.get("epoch", 0.0) + (now - self.since.get(path, now)) * rate)
        self.since[path] = now
        given = found["spec"].get("allocation") or {}
        wants = given.get("workers", 0), given.get("servers", 0)
        status |= {"workers": wants[0], "servers": wants[1], "phase": "Running" if all(wants) else "Suspended"}
        status |= {"samplesPerEpoch": SAMPLES, "samplesPerSecond": float(min(wants))}
        if status["epoch"] >= epochs - 1e-9:
            ended = datetime.fromtimestamp(now, UTC).isoformat().replace("+00:00", "Z")
            status |= {"phase": "Completed", "workers": 0, "servers": 0, "completionTime": ended}
        elif wants != had and all(wants):
            self.clock.at(now + (epochs - status["epoch"]) * SAMPLES / min(wants), self._wake)
        if status != found.get("status"):
            self.api.put(path, {**found, "status": status})

    def set_back(self, name, epochs):
        self.tend()
        path = f"{self.folder}/{name}"
        found = self.api.objects[path]
        self.api.put(path, {**found, "status": {**found["status"], "epoch": epochs}})

    def _wake(self):
        self.tend()
        self.clock.wake()
