"""This module keeps what the scheduler shows of sharing, as the learner's program tells it; it needs no torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class SharingStatus:
    """A `SharingStatus` says how sharing goes, for people and for Prometheus.

    Args:
        shared: the folder that clusters share.

    Attributes:
        clusters: others whose files were read when it looked last.
        speeds: configurations of types that dreams know from them alone.
        ignored: files that were ignored.
        tried: policies of theirs that the judge has tried, since the scheduler began.
        accepted: those that it let decide.
    """

    def __init__(self, shared: Path):
        self._shared = shared
        self.clusters, self.speeds, self.ignored, self.tried, self.accepted = 0, 0, 0, 0, 0
        self._last: Mapping[str, Any] = {}
        self._verdict = ""

    def hear(self, said: Mapping[str, Any]) -> None:
        """Take in what was said after a slot: a `FederationMember`'s report, and the verdict where one was tried."""
        self._last = said
        self.clusters, self.speeds, self.ignored = said["clusters"], said["speeds"], said["ignored"]
        if "verdict" in said:
            self.tried += 1
            self.accepted += said["accepted"]
            self._verdict = f"the last was {said['verdict']}"

    @property
    def summary(self) -> str:
        """Return how it goes, for people."""
        return f"{self._shared}: {'; '.join(filter(None, self._parts())) or 'nothing was shared yet'}"

    def _parts(self) -> list[str]:
        said = self._last
        if not said:
            return []
        off = "" if said["off"] is None else f", off ours by {said['off']:.0%} where both tried"
        tried = f"{self.accepted} of {self.tried} policies of theirs accepted" if self.tried else ""
        return [
            f"{self.clusters} other clusters",
            f"{self.speeds} speeds of {said['types']} types are theirs{off}",
            f"{said['far']} too far off to be used" if said["far"] else "",
            tried,
            self._verdict,
            f"{self.ignored} files ignored, see logs/learning.log" if self.ignored else "",
            said["trouble"],
        ]
