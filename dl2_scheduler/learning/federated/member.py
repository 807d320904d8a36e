"""This module lets a cluster that learns take part: it tells others what it knows, and uses what they tell."""

import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.learning.federated.borrowed_speeds import BorrowedSpeeds, borrowed_speeds
from dl2_scheduler.learning.federated.knowledge import ClusterKnowledge, type_digest
from dl2_scheduler.learning.federated.shared_folder import SharedFolder, federation_id
from dl2_scheduler.learning.federated.translated import to_digests, translated
from dl2_scheduler.policies.learnt.weights import Weights
from dl2_scheduler.world_model.future import largest
from dl2_scheduler.world_model.observed import ObservedCluster

log = logging.getLogger(__name__)

_TELLS_EVERY = 10  # slots, where its policy stays the same
_TRIES_EVERY = 3  # slots: a trial takes as long as an update or two; the next one of the same policy twice as many, ...


class _Trial(NamedTuple):
    """A `_Trial` says when a policy is tried next.

    Attributes:
        due: the number of slots that have to be seen by then.
        gap: slots from that trial to the one after it.
    """

    due: float = 0
    gap: float = _TRIES_EVERY


_NEVER = _Trial(math.inf)


class FederationMember:
    """A `FederationMember` is one cluster among those that share a folder.

    Nothing that is wrong with the folder stops it: it goes on alone, and says why.

    Args:
        shared: the folder.
        folder: of the cluster.
        now: unix seconds.
    """

    def __init__(self, shared: Path, folder: Path, now: Callable[[], float] = time.time):
        self._id, self._now = federation_id(folder), now
        self._folder = SharedFolder(shared, self._id, now)
        self._others: list[ClusterKnowledge] = []
        self._borrowed = BorrowedSpeeds()
        self._trials: dict[str, _Trial] = {}  # of policies that others have
        self._told, self._policy, self._slots = -_TELLS_EVERY, "", 0
        self._next_trial = 0
        self._troubles: dict[str, str] = {}

    def look(self, observed: ObservedCluster) -> None:
        """Read what others tell, and let dreams believe it as far as it agrees with what was seen here.

        Args:
            observed: what is known of the cluster; what is fitted for it borrows others' speeds from now on.
        """
        self._slots += 1
        with self._alone_if_it_fails("read"):
            self._others = self._folder.others()
        present = observed.last.snapshot.jobs if observed.last else ()
        jobs = largest([*(known.job for known in observed.jobs.by_key.values()), *(state.job for state in present)])
        self._borrowed = borrowed_speeds(observed.fitted.reports, self._others, jobs)
        observed.fitted.borrow(self._borrowed.speeds)

    def proposal(self, own: Weights) -> Weights | None:
        """Return a policy of another cluster that is due to be tried, now and then; None: there is none now.

        What is known here grows, so one that was tried is tried again, ever more rarely.

        Args:
            own: what learns here: another policy has to know the same types, and to be as large.
        """
        if self._slots < self._next_trial:
            return None
        there = {_name(other.weights): other for other in sorted(self._others, key=lambda each: -each.measured)}
        self._trials = {name: self._trials.get(name, _Trial()) for name in there if name != self._policy}
        for name, trial in self._trials.items():
            if self._slots < trial.due:
                continue
            found = translated(there[name].weights, own.models)
            if _sizes(found) == _sizes(own):
                self._trials[name] = _Trial(self._slots + trial.gap, 2 * trial.gap)
                self._next_trial = self._slots + _TRIES_EVERY
                return found
            log.warning("the policy of cluster %s is of another size: it is not tried", there[name].cluster)
            self._trials[name] = _NEVER
        return None

    def tell(self, observed: ObservedCluster, deciding: Weights) -> None:
        """Tell others what is known here: at once where the policy has changed, else now and then.

        Args:
            observed: what is known of the cluster.
            deciding: the policy that decides.
        """
        weights = to_digests(deciding)
        policy = _name(weights)
        if policy == self._policy and self._slots < self._told + _TELLS_EVERY:
            return
        speeds = {type_digest(model): dict(reports) for model, reports in observed.fitted.reports.items()}
        with self._alone_if_it_fails("written"):
            self._folder.publish(ClusterKnowledge(self._id, self._now(), speeds, weights))
            self._told, self._policy = self._slots, policy

    @property
    def report(self) -> dict[str, Any]:
        """It says in JSON how it goes, see `SharingStatus`."""
        found, off = self._borrowed, self._borrowed.off
        return {
            "clusters": len(self._others),
            "far": found.far,
            "types": len(found.speeds),
            "speeds": found.count,
            "off": None if math.isnan(off) else off,
            "ignored": len(self._folder.ignored),
            "trouble": "; ".join(self._troubles.values()),
        }

    @contextmanager
    def _alone_if_it_fails(self, what: str) -> Iterator[None]:
        """Let the folder fail, and say once why.

        Args:
            what: is done to the folder.
        """
        try:
            yield
        except (OSError, BadInput) as error:
            trouble = f"the folder cannot be {what}: {error}"
            if self._troubles.get(what) != trouble:
                log.warning("it goes on alone, as %s", trouble)
            self._troubles[what] = trouble
        else:
            self._troubles.pop(what, None)


def _name(weights: Weights) -> str:
    """Return what another policy does not have, also one with the same numbers for other types."""
    found = hashlib.sha256("".join(weights.models).encode())
    for name in sorted(weights.arrays):
        found.update(weights.arrays[name].tobytes())
    return found.hexdigest()


def _sizes(weights: Weights) -> Sequence[tuple[str, tuple[int, ...]]]:
    return sorted((name, array.shape) for name, array in weights.arrays.items())
