"""This module checks whether a running job's ledger proves that its epochs used each sample exactly once."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from coordinator.client import CoordinatorClient
from coordinator.ctl.exactly_once_audit import Audit, audit, first_whole_epoch
from elastic_ps.core.errors import ConfigurationError
from protos import elastic_pb2 as pb

LATE_SECONDS = 15.0
"""Seconds that servers may take to report what they applied."""
_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Proof:
    """A proof tells of the epochs from `first` up to, and without, `last`."""

    first: int
    last: int
    found: Audit

    def to_dict(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "exactly_once": self.found.exactly_once,
            "first_epoch": self.first,
            "epochs": self.last - self.first,
            "updates": self.found.updates,
            "voided": self.found.voided,
            "problems": list(self.found.problems),
            "remarks": list(self.found.remarks),
        }

    def __str__(self) -> str:
        epochs = f"epochs {self.first} to {self.last - 1}" if self.last - self.first > 1 else f"epoch {self.first}"
        counts = f"{self.found.updates} updates" + (f", {self.found.voided} voided" if self.found.voided else "")
        verdict = "every" if self.found.exactly_once else "NOT every"
        told = f"{epochs}: {verdict} sample entered every parameter exactly once ({counts})"
        return "\n".join([told, *self.found.problems, *self.found.remarks])


def prove(client: CoordinatorClient) -> Proof:
    """Check all epochs that are over; waits for what servers report late.

    Raises:
        ClientError: the coordinator does not answer.
        ConfigurationError: there is nothing that could be proved, with the reason.
    """
    status = client.status()
    if not status.data.samples:
        why = "its script draws its own batches (data: static)" if status.blocks else "it has not begun to train"
        raise ConfigurationError(f"{status.job}: the ledger cannot tell which samples were used: {why}")
    until = time.monotonic() + LATE_SECONDS
    while True:
        proof = _check(status, client.ledger)
        if proof.found.exactly_once or time.monotonic() > until:
            return proof
        time.sleep(_LOOK_SECONDS)


def _check(status: pb.StatusReply, ledger: Callable[[], Iterable[pb.LedgerEntry]]) -> Proof:
    """Check the epochs before the present one. A ledger that was lost begins within one, which it cannot prove."""
    last, data = int(status.epoch), status.data
    late = status.ledger_began_late or status.rebuilt  # coordinators of an earlier release have the second alone
    first = first_whole_epoch(ledger()) if late else 0
    if first >= last:
        raise ConfigurationError(
            f"{status.job}: no epoch is over that its ledger has from its beginning; ask again later"
        )
    before = (entry for entry in ledger() if entry.epoch < last)
    kind = data.last or "short"
    return Proof(first, last, audit(before, data.samples, data.global_batch, last, kind, first, status.blocks))
