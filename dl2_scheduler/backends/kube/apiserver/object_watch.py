"""This module keeps objects of one kind true by a watch."""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Generic, TypeVar

from k8s.foundation.api_server import ApiError, ApiServer, Gone, Rejected, error_of

log = logging.getLogger(__name__)

_WATCH_SECONDS = 280  # the server ends a watch then; some minutes apart, so that not all end at once
_PAGE = 500
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_HEALTHY_SECONDS = 5.0  # a watch that lasted so long was no failure

Seen = TypeVar("Seen")


class Mirror(Generic[Seen]):
    """A `Mirror` has the objects of one kind, as far as they are read. It is safe from several threads.

    Args:
        read: makes of an object what is kept.
        gist: of what is kept, the part whose change counts; None: all of it.
    """

    def __init__(self, read: Callable[[Mapping[str, Any]], Seen], gist: Callable[[Seen], object] | None = None):
        self._read = read
        self._gist = gist or (lambda seen: seen)
        self._lock = threading.Lock()
        self._objects: dict[str, Seen] = {}
        self.version = ""
        """From which a watch goes on; "": nothing has been listed."""

    def all(self) -> list[Seen]:
        """Return all objects, as last told."""
        with self._lock:
            return list(self._objects.values())

    def replace(self, listed: list[Mapping[str, Any]], version: str) -> None:
        """Take in a list: what is not in it is gone."""
        seen = ((found["metadata"]["uid"], self._see(found)) for found in listed)
        objects = {uid: each for uid, each in seen if each is not None}
        with self._lock:
            self._objects = objects
        self.version = version

    def take(self, event: Mapping[str, Any]) -> bool:
        """Take in an event of a watch; return whether it counts: most of what nodes and pods tell is not even kept.

        Raises:
            ApiError: the event is an error: Gone where the version is too old to go on from.
        """
        kind, found = str(event["type"]), event["object"]
        if kind == "ERROR":
            raise error_of(found.get("code", 500), found.get("message", "the watch has failed"))
        self.version = found["metadata"]["resourceVersion"]
        if kind == "BOOKMARK":
            return False
        uid = found["metadata"]["uid"]
        seen = None if kind == "DELETED" else self._see(found)
        with self._lock:
            before = self._objects.get(uid)
            if seen is None:
                self._objects.pop(uid, None)
            else:
                self._objects[uid] = seen
        if before is None or seen is None:
            return before is not seen
        return self._gist(before) != self._gist(seen)

    def _see(self, found: Mapping[str, Any]) -> Seen | None:
        """Return what is kept of an object; None where it cannot be read: one such shall not stop the others."""
        try:
            return self._read(found)
        except Exception as error:  # noqa: BLE001
            log.warning("%s cannot be read, and is left out: %r", found["metadata"].get("name"), error)
            return None


class Watcher(Generic[Seen]):
    """A `Watcher` keeps a mirror true, in a thread of its own.

    Args:
        api: is listed once and watched from then on.
        path: of the kind.
        read: see `Mirror`.
        changed: called after each change that counts.
        fields: field selector: of the objects that count.
        stopped: ends the thread; tests end it between two attempts.
        gist: see `Mirror`.

    Attributes:
        refused: why the API server does not let it watch, as when it tried last; "": it does.
    """

    def __init__(
        self,
        api: ApiServer,
        path: str,
        read: Callable[[Mapping[str, Any]], Seen],
        changed: Callable[[], None],
        fields: str = "",
        stopped: threading.Event | None = None,
        gist: Callable[[Seen], object] | None = None,
    ):
        self._api = api
        self._path = path
        self._changed = changed
        self._query = {"fieldSelector": fields} if fields else {}
        self._stopped = stopped or threading.Event()
        self._mirror = Mirror(read, gist)
        self._synced = threading.Event()
        self.refused = ""

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self.run, name=f"watch{self._path}", daemon=True).start()

    def stop(self) -> None:
        """End when the watch says something, or is over."""
        self._stopped.set()

    def all(self) -> list[Seen]:
        """Return all objects, as last told."""
        return self._mirror.all()

    @property
    def synced(self) -> bool:
        """Return whether everything has been listed once."""
        return self._synced.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait until everything has been listed once; return whether it has."""
        return self._synced.wait(seconds)

    def run(self) -> None:
        """Watch until stopped.

        A watch that has ended is gone on with; where its place is forgotten, all is listed again; after failures it
        waits.
        """
        pause = _SHORTEST_PAUSE
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                self._follow()
            except Gone:
                log.info("%s: the watch's place has been forgotten; listing again", self._path)
                self._mirror.version = ""
            except ApiError as error:
                self.refused = str(error) if isinstance(error, Rejected) else ""
                log.warning("%s: %s; watching again in %.1f s", self._path, error, pause)
            if time.monotonic() - began > _HEALTHY_SECONDS:
                pause = _SHORTEST_PAUSE
                continue
            self._stopped.wait(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _follow(self) -> None:
        if not self._mirror.version:
            self._list()
        query: dict[str, str | int] = {
            **self._query,
            "resourceVersion": self._mirror.version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": random.randint(_WATCH_SECONDS, 2 * _WATCH_SECONDS),
        }
        with closing(self._api.watch(self._path, query)) as events:
            for event in events:
                if self._mirror.take(event):
                    self._changed()
                if self._stopped.is_set():
                    return

    def _list(self) -> None:
        found: list[Mapping[str, Any]] = []
        query: dict[str, str | int] = {**self._query, "limit": _PAGE}
        while True:
            page = self._api.get(self._path, query)
            found += page["items"]
            more = page["metadata"].get("continue")
            if not more:
                break
            query["continue"] = more
        self._mirror.replace(found, page["metadata"]["resourceVersion"])
        self.refused = ""
        self._synced.set()
        self._changed()
