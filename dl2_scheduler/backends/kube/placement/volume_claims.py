"""This module watches claims of volumes that pods to be bound name, from the first on, and reads what these mean."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dl2_scheduler.backends.kube.apiserver.object_watch import Watcher
from dl2_scheduler.backends.kube.apiserver.objects import PodInfo
from dl2_scheduler.backends.kube.placement.volumes import (
    ClaimedVolume,
    ClaimInfo,
    ClaimKey,
    bound_volume,
    claim_of,
    pending_volume,
)
from k8s.foundation.api_server import ApiError, ApiServer, NotFound

log = logging.getLogger(__name__)

CLAIMS_PATH = "/api/v1/persistentvolumeclaims"
_VOLUMES_PATH = "/api/v1/persistentvolumes"
_CLASSES_PATH = "/apis/storage.k8s.io/v1/storageclasses"
_AFTER_FAILURE = 1.0
_KNOWN_SECONDS = 30.0  # for which a volume or a class is what was read: it may be deleted, and made anew otherwise


class VolumeClaimReader:
    """A `VolumeClaimReader` says what claims mean; see `binder.Volumes`. It is for one thread.

    Args:
        api: of the cluster.
        changed: called after each change of a claim.
        clock: monotonic seconds.
    """

    def __init__(self, api: ApiServer, changed: Callable[[], None], clock: Callable[[], float] = time.monotonic):
        self._api = api
        self._changed, self._clock = changed, clock
        self._stopped = threading.Event()
        self._watcher: Watcher[ClaimInfo] | None = None
        self._read: dict[str, tuple[Mapping[str, Any], float]] = {}  # volumes and classes, and since when

    def stop(self) -> None:
        """End the watch."""
        self._stopped.set()

    def of(self, pods: Sequence[PodInfo]) -> tuple[dict[ClaimKey, ClaimedVolume], float | None]:
        """See `binder.Volumes.of`: nothing tells when a class that makes no volume yet is another."""
        keys = {(pod.namespace, name) for pod in pods for name in pod.claims}
        if not keys:
            return {}, None
        if self._watcher is None:
            self._watcher = Watcher(self._api, CLAIMS_PATH, claim_of, self._changed, stopped=self._stopped)
            self._watcher.start()
        if not self._watcher.synced:
            return {}, None  # it tells when it has listed them
        known = {claim.key: claim for claim in self._watcher.all()}
        now, found = self._clock(), {}
        again: set[float] = set()
        self._read = {path: each for path, each in self._read.items() if now - each[1] < _KNOWN_SECONDS}
        for key in keys:
            claim = known.get(key)
            try:
                found[key] = self._volume(key, claim)
                if found[key].refusal and claim is not None and claim.waits_for_its_class:
                    again.add(_KNOWN_SECONDS)
            except ApiError as error:
                log.warning("the volume of %s/%s could not be read: %s", *key, error)
                found[key] = ClaimedVolume(f"the volume of its claim {key[1]} could not be read: {error}")
                again.add(_AFTER_FAILURE)
        return found, min(again, default=None)

    def _volume(self, key: ClaimKey, claim: ClaimInfo | None) -> ClaimedVolume:
        if claim is None:
            return ClaimedVolume(f"its claim {key[1]} does not exist")
        if claim.deleting or claim.phase == "Lost":
            return ClaimedVolume(f"its claim {key[1]} is {'about to go' if claim.deleting else 'lost'}")
        if claim.phase == "Bound":
            return bound_volume(claim, self._get(f"{_VOLUMES_PATH}/{claim.volume}"))
        return pending_volume(claim, self._get(f"{_CLASSES_PATH}/{claim.storage}") if claim.storage else None)

    def _get(self, path: str) -> Mapping[str, Any]:
        if path not in self._read:
            try:
                self._read[path] = self._api.get(path), self._clock()
            except NotFound as error:
                raise NotFound(f"there is no {path.rpartition('/')[2]}") from error
        return self._read[path][0]
