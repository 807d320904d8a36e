"""This module lets a node that is told to go (SIGTERM) leave its job."""

import logging
import math
import os
import time
from collections.abc import Mapping
from typing import Protocol

from elastic_ps.core.errors import CoordinatorLost, ElasticError, JobEnded
from elastic_ps.system.process.signals import SAME_SECONDS

log = logging.getLogger(__name__)

GRACE = "ELASTIC_GRACE"
"""This environment variable says how many seconds a node has from its first SIGTERM on; its launcher sets it."""

EXIT_TERMINATED = 143
"""Exit status of a node that had to go and could not be drained: 128 + SIGTERM."""

_AGAIN_SECONDS = 3.0
"""The pause between two wishes to be drained: a coordinator that lost its journal, or gave a plan up, forgot one."""
_INSURED_SECONDS = 10.0
"""After so long without being out the job is saved, in case the node is ended before it is out."""


class Leaving(Protocol):
    """A `Leaving` is the part of `Session` that this module needs."""

    def leave(self) -> None:
        """Ask to be drained."""

    def checkpoint(self) -> str:
        """Save the whole job; return where."""

    def closes_within(self, seconds: float) -> bool:
        """Wait for the session's end; return whether it has come."""


def same_signal_seconds(environment: Mapping[str, str] = os.environ) -> float:
    """Return within how many seconds SIGTERM is the same one; the launcher's second comes in its grace's last third."""
    try:
        grace = float(environment.get(GRACE) or math.inf)
    except ValueError:
        grace = math.inf
    return min(SAME_SECONDS, grace / 2)


def leave_or_save(session: Leaving) -> str:
    """Ask to be drained until this node is out. Where the job refuses, have it saved instead.

    The node trains on meanwhile: a checkpoint has a clock, which is reached by all together. A coordinator that is away
    is asked again, for as long as this process lives: whoever told it to go bounds that, by a second SIGTERM before
    its grace ends (`elasticrun --grace`). A drain that takes long, as where another node has to come first, is insured
    by a checkpoint.

    Returns:
        Why the node has to end now, with `EXIT_TERMINATED`; "": it is out, or the job is over.
    """
    begun, insured, complained = time.monotonic(), False, ""
    while True:
        try:
            session.leave()
        except JobEnded:
            return ""
        except CoordinatorLost as error:
            if str(error) != complained:
                complained = str(error)
                log.warning("SIGTERM, but no coordinator answers to drain this node (%s): it keeps asking", error)
        except ElasticError as error:
            return f"SIGTERM, but this node cannot be drained ({error}){_save(session)}"
        if session.closes_within(_AGAIN_SECONDS):
            return ""
        if not insured and time.monotonic() > begun + _INSURED_SECONDS:
            insured = True
            saved = _save(session)
            if not session.closes_within(0.0):  # else it is out by now
                log.warning("this node has not been drained after %.0f s%s", time.monotonic() - begun, saved)


def _save(session: Leaving) -> str:
    """Save the job; return what came of it, as the end of a sentence."""
    try:
        return f"; the job was saved to {session.checkpoint()}"
    except ElasticError as error:
        return f", nor the job be saved ({error})"
